"""The suite against the small right server: reports, exit codes, known failures."""

from __future__ import annotations

import json
import socket
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from conformance.checker.report import write_matrix
from conformance.checker.run import Run, RunOptions, read_known_failing
from conformance.checker.scenarios import all_scenarios
from conformance.commands import main
from conformance.mutants.server import MODEL, right_server


def test_a_run_writes_every_report_from_the_one_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with right_server("no-item-done") as url:
        arguments = ["--base-url", url, "--features", "text,tools", "--protocols", "responses", "--report-dir", str(tmp_path)]
        code = main(["run", *arguments, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.strip().split("\n")]

    assert code == 1
    assert {row["verdict"] for row in rows} >= {"fail"}
    assert [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().strip().split("\n")][1:] == rows
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["rules"]["RS11"] == "broken"
    assert summary["model"] == MODEL
    cases = ElementTree.parse(tmp_path / "junit.xml").getroot().findall("testcase")
    assert len(cases) == len(rows)
    finding = next(finding for row in rows for finding in row["broken"] if finding["rule"] == "RS11")
    assert (tmp_path / finding["trace"]).is_file()
    assert finding["curl"].startswith("curl -N -X POST")
    assert "Codex" in finding["consequence"]
    page = (tmp_path / "matrix.html").read_text()
    assert 'class="broken"' in page
    assert "src=" not in page


def test_traces_can_be_judged_offline_again(tmp_path: Path) -> None:
    with right_server() as url:
        assert (
            main(["run", "--base-url", url, "--protocols", "messages", "--features", "text", "--report-dir", str(tmp_path)]) == 0
        )

    assert main(["check", "--protocol", "messages", str(tmp_path / "traces" / "messages" / "text")]) == 0


def test_two_runs_merge_into_one_matrix(tmp_path: Path) -> None:
    for name in ("right", "wrong"):
        with right_server(*(["two-ends"] if name == "wrong" else [])) as url:
            main(
                [
                    "run",
                    "--base-url",
                    url,
                    "--name",
                    name,
                    "--protocols",
                    "chat",
                    "--features",
                    "text",
                    "--report-dir",
                    str(tmp_path / name),
                ]
            )
    write_matrix([tmp_path / "right", tmp_path / "wrong"], tmp_path / "both.html")
    page = (tmp_path / "both.html").read_text()

    assert "T4 on wrong: broken" in page
    assert "T4 on right: held" in page


def test_a_known_failure_is_not_held_against_a_target_until_it_passes(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("responses/text  # items are never done\n")
    arguments = ["--protocols", "responses", "--features", "text", "--known-failing", str(known)]

    with right_server("no-item-done") as url:
        assert main(["run", "--base-url", url, *arguments]) == 1, "other scenarios still fail"
    with right_server() as url:
        assert main(["run", "--base-url", url, *arguments]) == 1, "a listed scenario that passes must leave the list"
    known.write_text("RS11  # items are never done\nRS12  # follows from it\nRS3\nRS25\n")
    with right_server("no-item-done") as url:
        assert main(["run", "--base-url", url, *arguments]) == 0, "a listed rule decides no verdict"
    known.write_text("responses/text  # items are never done\nRS11  # the same\nRS12\nRS3\nRS25\n")
    with right_server("no-item-done") as url:
        assert main(["run", "--base-url", url, *arguments]) == 0, "a scenario that fails by a listed rule may be listed too"
    known.write_text("responses/nothing\n")
    with pytest.raises(ValueError, match="allowed protocol/scenario"):
        read_known_failing(known)


def test_a_target_that_is_not_there_gives_exit_2() -> None:
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main(["run", "--base-url", url, "--model", "m", "--features", "models"]) == 2
        assert main(["run", "--base-url", url]) == 2


def test_a_failure_on_a_connection_tells_how_to_say_it_again() -> None:
    (scenario,) = (one for one in all_scenarios() if one.id == "responses/websocket-second-turn")
    with right_server("done-over-websocket") as url:
        run = Run(RunOptions(url, MODEL))
        outcome = run.run_one(scenario)
        run.close()
    finding = next(one for one in outcome.broken if one.rule == "WS2")

    assert finding.curl.startswith('(printf \'%s\\n\' \'{"type": "response.create"')
    assert finding.curl.endswith(f"| python -m websockets '{url.replace('http', 'ws')}/v1/responses'")
