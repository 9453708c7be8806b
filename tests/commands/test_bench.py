"""What `bench` asks for and prints, with the measuring left out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from zllm_ref.commands import bench, bench_peers
from zllm_ref.commands.bench_work import BenchWork, with_prefix_rate

OWN = {
    "prefill_tokens_per_second": {"1000": 800.0, "4000": 500.0},
    "decode_tokens_per_second": 30.0,
    "decode_tokens_per_second_4_streams": 90.0,
    "ttft_cold_seconds": 8.0,
    "ttft_resident_seconds": 0.1,
    "ttft_ssd_seconds": 0.16,
    "ttft_ssd_dropped_seconds": 0.25,
    "ssd_write_seconds": 0.3,
    "ssd_bytes": 92_200_000,
    "ssd_write_stall_seconds": 0.05,
    "stall_seconds": 0.4,
    "invariance_cost": {"1": 0.02, "4": -0.01},
}
SLOT = {"ttft_ssd_seconds": 0.2, "ttft_ssd_dropped_seconds": 0.3, "ssd_write_seconds": 0.1, "ssd_bytes": 92_200_000}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], BenchWork]]:
    """What was to be measured, each time; figures as above."""
    found: list[tuple[list[str], BenchWork]] = []

    def measure_all(names: Sequence[str], path: Path, dtype: str, threads: int, work: BenchWork, progress: Any) -> Any:
        found.append((list(names), work))
        own = OWN if "decode" in work.figures else {key: value for key, value in OWN.items() if key in SLOT}
        return own, dict.fromkeys(names, SLOT)

    monkeypatch.setattr(bench_peers, "measure_all", measure_all)
    return found


def run(tmp_path: Path, *arguments: str) -> int:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers())
    args = parser.parse_args(["bench", "--model", str(tmp_path / "model.gguf"), *arguments])
    return int(args.run(args))


def test_several_peers_are_asked_for_in_one_run(asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--against", "transformers,llama.cpp", "--against", "llama.cpp", "--json") == 0

    (names, work), found = asked[0], json.loads(capsys.readouterr().out)
    assert names == ["transformers", "llama.cpp"]
    assert work.figures == ("prefill", "decode", "first-token", "stall", "ssd", "invariance")
    assert found["ttft_ssd_seconds"] == 0.16
    assert found["ratios"]["llama.cpp"]["ttft_ssd_seconds"] == pytest.approx(0.8)


def test_the_table_says_what_a_hit_on_ssd_is_worth(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run(tmp_path, "--against", "llama.cpp")

    text = " ".join(capsys.readouterr().out.split())
    assert "a hit on SSD, page cache warm: 1/50 of cold, 1.60 × a resident hit" in text
    assert "a hit on SSD, dropped: 1/32 of cold, 2.50 × a resident hit" in text
    assert "written without sync and checksum" in text
    assert "longest stall beside such a writing" in text


def test_chosen_figures_alone_are_a_table_too(asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--only", "ssd", "--against", "llama.cpp") == 0

    text = capsys.readouterr().out
    assert asked[0][1].figures == ("ssd",)
    assert "prefix on SSD" in text
    assert "decode" not in text


@pytest.mark.parametrize("wrong", [("--against", "ollama"), ("--only", "ssd,speed"), ("--against", "")])
def test_what_is_not_known_is_refused(tmp_path: Path, wrong: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path, *wrong)

    assert "allowed" in capsys.readouterr().err


def test_the_rate_of_the_long_prefill_is_that_of_its_cold_first_token() -> None:
    work = BenchWork()
    figures = {"prefill_tokens_per_second": {"1000": 1.0}, "ttft_cold_seconds": 8.0}

    assert with_prefix_rate(figures, work)["prefill_tokens_per_second"] == {"1000": 1.0, "4000": 500.0}
    assert with_prefix_rate({"ttft_cold_seconds": 8.0}, work) == {"ttft_cold_seconds": 8.0}
