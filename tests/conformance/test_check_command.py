"""`python -m conformance check`: exit codes, what stands on stdout, what lies beside a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.checker.stream_check import StreamCheck
from conformance.commands import main
from conformance.golden.build import accept_cases
from conformance.golden.case import Case
from conformance.mutants.faults_websocket import websocket_lines
from tests.conformance.calls import num_calls

FIELDS = {"file", "rule", "level", "event", "expected", "got", "consequence"}


def case_of(protocol: str, name: str) -> Case:
    return next(case for case in accept_cases(protocol) if case.id.endswith(name))


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_a_right_stream_gives_exit_0_and_an_empty_stdout(
    protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.sse").write_bytes(case_of(protocol, "tools/parallel").encode())

    assert main(["check", "--protocol", protocol, "--json", str(tmp_path / "a.sse")]) == 0
    assert capsys.readouterr().out == ""


def test_a_violation_is_one_json_object_a_line_with_its_consequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = case_of("messages", "text/plain").encode().replace(b"event: content_block_stop\n", b"event: other\n")
    (tmp_path / "a.sse").write_bytes(body)

    assert main(["check", "--protocol", "messages", "--json", str(tmp_path)]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [set(row) for row in rows] == [FIELDS]
    assert rows[0]["rule"] == "AN16"
    assert rows[0]["file"].endswith("a.sse")
    assert "Claude Code" in rows[0]["consequence"]


def test_the_unary_answer_beside_a_stream_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of("chat", "text/plain")
    assert case.unary is not None
    (tmp_path / "a.sse").write_bytes(case.encode())
    unary = json.loads(json.dumps(case.unary))
    unary["choices"][0]["message"]["content"] = "something else"
    (tmp_path / "a.unary.json").write_text(json.dumps(unary))

    assert main(["check", "--protocol", "chat", "--json", str(tmp_path)]) == 1
    assert {json.loads(line)["rule"] for line in capsys.readouterr().out.splitlines()} == {"X1"}


def test_a_request_beside_a_stream_tells_what_was_owed(tmp_path: Path) -> None:
    case = case_of("chat", "usage/not-asked")
    (tmp_path / "a.sse").write_bytes(case.encode())
    assert main(["check", "--protocol", "chat", str(tmp_path / "a.sse")]) == 0

    (tmp_path / "a.request.json").write_text(json.dumps({"stream": True, "stream_options": {"include_usage": True}}))
    assert main(["check", "--protocol", "chat", str(tmp_path / "a.sse")]) == 1


def test_a_websocket_capture_is_judged(tmp_path: Path) -> None:
    lines = websocket_lines()
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["check", "--protocol", "responses", str(path)]) == 0

    received = [line["message"] for line in lines if line["direction"] == "received" and line["message"]["type"] != "error"]
    path.write_text("".join(json.dumps(event) + "\n" for event in received))
    assert main(["check", "--protocol", "responses", str(path)]) == 0

    path.write_text("".join(json.dumps(event) + "\n" for event in received[1:]))
    assert main(["check", "--protocol", "responses", str(path)]) == 1


def test_profiles_decide_what_is_owed(tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_bytes(case_of("responses", "text/plain").encode())

    assert main(["check", "--protocol", "responses", "--profile", "openai", str(tmp_path)]) == 0
    assert main(["check", "--protocol", "responses", "--profile", "openresponses", str(tmp_path)]) == 1


@pytest.mark.parametrize("name", ["missing.sse", "empty-folder", "session.jsonl", "a.sse"])
def test_what_cannot_run_gives_exit_2_and_an_empty_stdout(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty-folder").mkdir()
    (tmp_path / "session.jsonl").write_text("{}\n")
    (tmp_path / "a.sse").write_text("data: [DONE]\n\n")
    (tmp_path / "a.unary.json").write_text("not json")

    assert main(["check", "--protocol", "chat", "--json", str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert name.partition(".")[0] in captured.err


def test_an_empty_file_is_a_stream_that_lacks_everything(tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_bytes(b"")

    for protocol in ("chat", "responses", "messages"):
        assert main(["check", "--protocol", protocol, str(tmp_path / "a.sse")]) == 1


def test_check_imports_neither_the_server_nor_torch(tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_bytes(case_of("chat", "text/plain").encode())
    code = (
        "import sys; from conformance.commands import main; "
        f"assert main(['check', '--protocol', 'chat', {str(tmp_path / 'a.sse')!r}]) == 0; "
        "assert not {'torch', 'zllm_ref', 'openai', 'anthropic'} & set(sys.modules), sorted(sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=600).returncode == 0


def test_ten_megabytes_are_judged_and_no_event_is_more_work_than_the_first(tmp_path: Path) -> None:
    data = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    delta = f"event: content_block_delta\ndata: {json.dumps(data)}\n\n".encode()
    frames = case_of("messages", "text/one-piece").encode().split(b"event: content_block_delta")
    begin, end, thousand = frames[0] + delta, b"event: content_block_delta" + frames[1], delta * 1000
    path = tmp_path / "big.sse"
    path.write_bytes(begin + delta * (10_000_000 // len(delta)) + end)
    check = StreamCheck("messages")
    check.feed(begin)

    first = num_calls(lambda: check.feed(thousand))
    for _ in range(10_000_000 // len(thousand)):
        check.feed(thousand)
    last = num_calls(lambda: check.feed(thousand))

    assert main(["check", "--protocol", "messages", str(path)]) == 0
    assert first == last < 150 * 1000
