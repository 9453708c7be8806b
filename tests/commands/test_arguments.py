"""Every command explains itself, and refuses what it cannot use with one clear line and exit code 2."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.__main__ import COMMANDS, main
from zllm_ref.commands.argument_numbers import byte_count, count, pause, port, positive, seconds, share
from zllm_ref.commands.model_arguments import add_model_arguments, engine_settings
from zllm_ref.commands.serve import add_parser, server_settings
from zllm_ref.config import EngineSettings, ServerSettings


def exit_code(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(command, "--help") == 0

    assert f"zllm_ref {command}" in capsys.readouterr().out


def test_the_commands_are_listed_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0

    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nfrom zllm_ref.__main__ import main\n"
        "try:\n    main(['serve', '--help'])\nexcept SystemExit:\n    print('torch' in sys.modules)"
    )

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True).stdout

    assert shown.strip().endswith("False")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("serve", "--threads", "0"),
        ("serve", "--threads", "two"),
        ("serve", "--port", "70000"),
        ("serve", "--port", "-1"),
        ("serve", "--port", "http"),
        ("serve", "--dtype", "float16"),
        ("serve", "--context-length", "0"),
        ("serve", "--resident-bytes", "much"),
        ("serve", "--resident-bytes", "-4GiB"),
        ("serve", "--resident-bytes", "inf"),
        ("serve", "--resident-bytes", "nan"),
        ("serve", "--ssd-bytes", "1e400GiB"),
        ("serve", "--stages", "0"),
        ("serve", "--unit-interval", "-1"),
        ("serve", "--units", "end-of-day"),
        ("serve", "--near-miss-tokens", "-1"),
        ("serve", "--near-miss-share", "1.5"),
        ("serve", "--near-miss-share", "nan"),
        ("serve", "--prefix-rounds", "-1"),
        ("serve", "--max-lanes", "0"),
        ("serve", "--max-body-bytes", "x"),
        ("serve", "--max-concurrent-requests", "0"),
        ("serve", "--heartbeat-seconds", "0"),
        ("serve", "--heartbeat-seconds", "nan"),
        ("serve", "--heartbeat-seconds", "inf"),
        ("serve", "--response-ttl", "-1"),
        ("serve", "--profile", "somebody"),
        ("doctor", "--threads", "-2"),
        ("bench", "--threads", "0"),
        ("bench", "--repeats", "0"),
        ("bench", "--against", "nobody"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_used_is_refused_by_name(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*arguments) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert shown.err.splitlines()[-1].startswith("python -m zllm_ref")
    assert all(argument in shown.err for argument in arguments[1:2])


def test_a_doctor_without_a_model_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("doctor", "--model", "no-such-model", "--threads", "1") == 2

    assert "no-such-model" in capsys.readouterr().err


def test_the_doctor_of_a_tiny_model_finds_it_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("doctor", "--model", "tiny-llama", "--threads", "1", "--dtype", "float32") == 0

    shown = capsys.readouterr().out
    assert "whole model" in shown
    assert "DIFFERS" not in shown


@pytest.mark.parametrize(
    ("text", "value"),
    [("4GiB", 4 << 30), ("512 MiB", 512 << 20), ("1.5kb", 1500), ("100000", 100_000), ("10b", 10), ("0", 0), ("1TB", 10**12)],
)
def test_bytes_may_be_written_with_a_unit(text: str, value: int) -> None:
    assert byte_count(text) == value


@given(st.text(max_size=6) | st.floats().map(str) | st.integers().map(str))
def test_any_text_is_a_number_within_its_bounds_or_refused(text: str) -> None:
    for read, low, high in (
        (byte_count, 0, 1 << 62),
        (positive, 1, None),
        (count, 0, None),
        (port, 0, 65_535),
        (seconds, 0, None),
        (pause, 0, None),
        (share, 0, 1),
    ):
        try:
            value = read(text)
        except argparse.ArgumentTypeError as refused:
            text_of_refusal = str(refused)
        else:
            assert low <= value <= (value if high is None else high)
            continue
        assert text_of_refusal.startswith("got")
        assert "allowed" in text_of_refusal


def test_no_arguments_are_the_default_settings() -> None:
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)

    assert engine_settings(parser.parse_args([])) == EngineSettings()


def test_every_model_argument_reaches_the_settings() -> None:
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    given_arguments = (
        "--model m --dtype float32 --threads 3 --device cuda --context-length 9 --dialect d --resident-bytes 1KiB --ssd-dir s "
        "--ssd-bytes 2KiB --stages 4 --no-write-behind --whole-states-only --unit-interval 5 --near-miss-tokens 6 "
        "--units common-prefix "
        "--near-miss-share 0.5 --prefix-rounds 7 --keep-reasoning --no-guard --script f --max-lanes 8"
    )

    settings = engine_settings(parser.parse_args(given_arguments.split()))

    model, cache = settings.model, settings.cache
    assert (model.model, model.dtype, model.threads, model.device, model.context_length, model.dialect) == (
        "m",
        "float32",
        3,
        "cuda",
        9,
        "d",
    )
    assert (cache.resident_bytes, cache.ssd_directory, cache.ssd_bytes, cache.num_stages) == (1024, Path("s"), 2048, 4)
    assert (cache.write_behind, cache.whole_states_only, cache.unit_interval_tokens) == (False, True, 5)
    assert cache.units == ("common-prefix",)
    assert (cache.near_miss_tokens, cache.near_miss_share, cache.prefix_rounds) == (6, 0.5, 7)
    assert (settings.keep_reasoning, settings.guard, settings.script, settings.max_lanes) == (True, False, Path("f"), 8)


def test_arguments_of_serve_become_the_servers_settings(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    given = "--host ::1 --port 0 --profile codex --api-key a --api-key b --cache-sharing --max-body-bytes 1MiB"
    given += " --max-concurrent-requests 3 --heartbeat-seconds 2 --response-ttl 60 --max-stored-bytes 2MiB"
    given += f" --keep-billing-line --inspect-remote --state-dir {tmp_path}"

    plain = server_settings(parser.parse_args(["serve"]))
    changed = server_settings(parser.parse_args(["serve", *given.split()]))

    assert plain == ServerSettings()
    assert changed == ServerSettings(
        host="::1",
        port=0,
        profile="codex",
        api_keys=("a", "b"),
        cache_sharing=True,
        strip_billing_line=False,
        max_body_bytes=1 << 20,
        max_concurrent_requests=3,
        heartbeat_seconds=2,
        state_directory=tmp_path,
        response_ttl_seconds=60,
        max_stored_bytes=2 << 20,
        inspect_remote=True,
    )
