"""What a target does not serve is one cause, told once with its evidence, and never green."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.checker.run import exit_code
from conformance.checker.scenarios import all_scenarios
from conformance.checker.verdict import Outcome, Verdict
from conformance.commands import main
from conformance.mutants.server import right_server


def run(url: str, folder: Path, *more: str) -> tuple[int, list[dict[str, object]]]:
    code = main(["run", "--base-url", url, "--report-dir", str(folder), "--features", "text,models,websocket", *more])
    return code, [json.loads(line) for line in (folder / "results.jsonl").read_text().strip().split("\n")][1:]


def test_a_protocol_that_is_not_served_is_unsupported_once_with_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with right_server("lacks-messages") as url:
        code, rows = run(url, tmp_path, "--protocols", "chat,messages")
    of_messages = [row for row in rows if row["protocol"] == "messages"]

    assert code == 0, "the rest conforms"
    assert {row["verdict"] for row in of_messages} == {"unsupported"}
    assert {row["absence"] for row in of_messages} == {"messages"}
    assert {row["verdict"] for row in rows if row["protocol"] == "chat"} <= {"pass", "inconclusive"}
    assert capsys.readouterr().out.count("messages is not served: POST v1/messages answered 404") == 1
    assert all((tmp_path / str(row["traces"][0])).is_file() for row in of_messages)  # type: ignore[index]
    states = json.loads((tmp_path / "summary.json").read_text())["rules"]
    assert states["AN1"] == states["K8"] == "unsupported"
    assert states["CH1"] == "held"
    assert 'class="unsupported"><a href' in (tmp_path / "matrix.html").read_text(), "the cell opens the evidence"


def test_a_refused_upgrade_is_one_cause(tmp_path: Path) -> None:
    with right_server("lacks-chat") as url:
        code, rows = run(url, tmp_path, "--protocols", "responses")
    of_websocket = [row for row in rows if row["feature"] == "websocket"]

    assert code == 0
    assert {row["absence"] for row in of_websocket} == {"websocket"}
    assert len(of_websocket) == sum(scenario.feature == "websocket" for scenario in all_scenarios())


def test_a_model_that_is_not_there_is_no_missing_protocol(tmp_path: Path) -> None:
    with right_server() as url:
        code, rows = run(url, tmp_path, "--protocols", "chat", "--model", "no-such-model")

    assert code == 1
    assert {row["absence"] for row in rows} == {""}


def test_a_run_in_which_nothing_was_judged_is_not_green(tmp_path: Path) -> None:
    with right_server("lacks-messages") as url:
        code, _ = run(url, tmp_path, "--protocols", "messages")

    assert code == 2
    assert exit_code([Outcome("text", "chat", "text", Verdict.INCONCLUSIVE)]) == 2
    assert exit_code([Outcome("text", "chat", "text", Verdict.PASS)]) == 0
