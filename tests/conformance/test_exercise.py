"""A rule that no capture exercised has not held."""

from __future__ import annotations

from pathlib import Path

from conformance.checker.client import Exchange
from conformance.checker.exercise import what_was_exercised
from conformance.checker.report.results import read_results, rules_of
from conformance.checker.run import Run, RunOptions
from conformance.checker.scenarios import all_scenarios
from conformance.mutants.server import MODEL, right_server
from conformance.requirements import load_requirements

DOCUMENTED = {
    "stream", "unary", "error", "refusal", "failure", "tools", "parallel", "reasoning", "logprobs", "unicode", "websocket",
    "turns", "lanes", "envelope", "steer",
}  # fmt: skip


def states_after(folder: Path, *names: str) -> dict[str, str]:
    """What a run of these scenarios says of every rule."""
    with right_server() as url:
        run = Run(RunOptions(url, MODEL, report_dir=folder))
        for scenario in all_scenarios():
            if scenario.id in names:
                run.run_one(scenario)
        run.close()
    return {rule: result.state for rule, result in rules_of(read_results(folder)).items()}


def test_needs_are_words_that_the_check_knows() -> None:
    for rule in load_requirements().values():
        assert set(rule.needs.split("|")) - {""} <= DOCUMENTED, rule


def test_text_alone_says_nothing_about_failures_tools_reasoning_and_connections(tmp_path: Path) -> None:
    states = states_after(tmp_path, "chat/several-choices")

    assert states["CH1"] == states["T4"] == "held"
    silent = ("T3", "T6", "T7", "T13", "CH10", "CH13", "CH15", "CH22", "CH25", "E2", "E3", "WS2", "RS1", "AN1", "K15", "X9")
    assert {rule: states[rule] for rule in silent} == dict.fromkeys(silent, "unproven")


def test_a_rule_of_one_protocol_does_not_hold_by_another_ones_capture(tmp_path: Path) -> None:
    states = states_after(tmp_path, "messages/text", "messages/wrong-type")

    assert states["E2"] == states["K15"] == states["T6"] == "held"
    assert {states[rule] for rule in ("T8", "E3", "CH1", "RS1")} == {"unproven"}


def test_what_exercises_a_rule_makes_it_hold(tmp_path: Path) -> None:
    states = states_after(
        tmp_path, "chat/unicode", "chat/parallel-tools", "chat/reasoning", "chat/wrong-type", "chat/failure-in-stream"
    )

    holding = ("T3", "T6", "T7", "CH13", "CH15", "CH22", "CH25", "E2", "E3", "T8")
    assert {rule: states[rule] for rule in holding} == dict.fromkeys(holding, "held")
    assert states["WS2"] == states["CH21"] == "unproven"


def test_a_connection_shows_turns_lanes_errors_and_steering_apart() -> None:
    def shown(*kinds: str, lane: str | None = None) -> set[str]:
        frames = [{"direction": "received", "message": {"type": kind, "stream_id": lane}} for kind in kinds]
        return what_was_exercised("responses", [Exchange("responses", "GET", "u", None, {}, 101, frames=frames)])

    assert shown("response.created") == {"", "websocket"}
    assert shown("response.created", "response.created") == {"", "websocket", "turns"}
    assert shown("response.created", lane="left") == {"", "websocket", "lanes"}
    assert shown("error") == {"", "websocket", "envelope"}
    assert shown("response.steer.failed") == {"", "websocket", "steer"}


def test_a_capture_that_we_cut_has_shown_no_whole_stream() -> None:
    cut = Exchange("chat", "POST", "u", {"stream": True}, {}, 200, {"content-type": "text/event-stream"}, was_cut_by_us=True)
    evidence = Exchange("chat", "POST", "u", {"stream": True}, {}, 404, is_evidence=True)

    assert what_was_exercised("chat", [cut]) == {""}
    assert what_was_exercised("chat", [evidence]) == set()
