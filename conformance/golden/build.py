"""Writes the accept and reject goldens and their plan: `python -m conformance.golden.build`.

Accept: one file a scenario. Reject: one file a planted fault, and single faults spread over the scenarios until every event
kind has been dropped, repeated and cut at. The files are committed; a test builds them again and compares.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from conformance.checker.stream_check import StreamCheck
from conformance.golden import render_chat, render_messages, render_responses
from conformance.golden.case import Case, golden_root
from conformance.golden.plan import render_plan
from conformance.golden.scenarios import Scenario, scenarios_for
from conformance.golden.session_case import PROTOCOL as SESSIONS
from conformance.golden.session_case import SessionCase
from conformance.golden.sessions import damaged, planted, single_turns, whole_connections
from conformance.golden.story import Call, Frame
from conformance.grammar import load_grammar
from conformance.mutants.faults import all_faults, base_stories, render
from conformance.mutants.systematic import mutants_of

PROTOCOLS: Final = ("chat", "responses", "messages")
_RENDERERS: Final = {"chat": render_chat, "responses": render_responses, "messages": render_messages}
_NUM_REJECTS: Final = 140


def accept_cases(protocol: str) -> Iterator[Case]:
    for scenario in scenarios_for(protocol):
        yield accept_case(protocol, scenario)


def accept_case(protocol: str, scenario: Scenario) -> Case:
    """The right stream of a scenario, with its unary answer where one exists."""
    renderer: Any = _RENDERERS[protocol]
    story = scenario.story
    frames = tuple(Frame(frame.event, _copy(frame.data), frame.is_comment) for frame in renderer.render_stream(story))
    has_unary = story.end not in ("error", "failed") and not story.option("whole_message")
    if protocol == "messages" and any(isinstance(part, Call) and part.is_cut for part in story.parts):
        has_unary = False  # no source says what a cut input becomes in a unary message
    unary = _copy(renderer.render_unary(story)) if has_unary else None
    return Case(
        f"{protocol}/accept/{scenario.id}", protocol, "accept", scenario.title, scenario.rules, frames, scenario.profile, unary
    )


def session_accepts() -> list[SessionCase]:
    """The right connections: each right stream of Responses as a turn, then what only a connection has."""
    return [*single_turns(accept_cases("responses")), *whole_connections()]


def reject_cases(protocol: str) -> Iterator[Case]:
    """The planted faults first, then systematic mutants, one a kind of fault, event kind and scenario in turn."""
    number = 0
    for fault in all_faults():
        if fault.protocol != protocol:
            continue
        frames, _ = render(protocol, base_stories(protocol)[fault.base])
        fault.edit(frames)
        if not fault.needs_unary:
            number += 1
            yield _reject(f"{protocol}/reject/faults/{fault.id}", protocol, fault.what, fault.rules, frames, fault.profile)
    seen: set[tuple[str, str, str]] = set()
    for fields, case in [(fields, case) for fields in (False, True) for case in accept_cases(protocol)]:
        for mutant in mutants_of(case, fields=fields):
            key = (mutant.operator, mutant.kind, mutant.path)
            if number >= _NUM_REJECTS or key in seen or bool(mutant.path) is not fields:
                continue
            found = _violations(protocol, case.profile, mutant.frames)
            if found:
                seen.add(key)
                number += 1
                place = f"{mutant.kind.replace('[DONE]', 'done')}{'-' * bool(mutant.path)}{mutant.path.replace('*', 'n')}"
                name = f"{protocol}/reject/{mutant.operator}/{place}"
                title = f"{mutant.operator} {mutant.kind} {mutant.path}".strip() + f" in {case.id}"
                yield _reject(name, protocol, title, (found[0].rule,), mutant.frames, case.profile)


def kind_of(protocol: str, frame: Frame) -> str:
    """The kind of a frame as the grammar names it."""
    if frame.is_comment:
        return "comment"
    return str(load_grammar(protocol).kind_of(frame.data)) if isinstance(frame.data, dict) else "[DONE]"


def build(root: Path) -> dict[str, int]:
    """Writes everything below `root`; returns how many files of each kind."""
    counts: dict[str, int] = {}
    for protocol in PROTOCOLS:
        for kind, cases in (("accept", accept_cases(protocol)), ("reject", reject_cases(protocol))):
            shutil.rmtree(root / protocol / kind, ignore_errors=True)
            for case in cases:
                path = root / f"{case.id}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(case.dump(), encoding="utf-8")
                counts[f"{protocol}/{kind}"] = counts.get(f"{protocol}/{kind}", 0) + 1
    accepted = session_accepts()
    for kind, sessions in (("accept", accepted), ("reject", [*planted(), *damaged(accepted)])):
        shutil.rmtree(root / SESSIONS / kind, ignore_errors=True)
        for session in sessions:
            path = root / f"{session.id}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(session.dump(), encoding="utf-8")
        counts[f"{SESSIONS}/{kind}"] = len(sessions)
    text = render_plan({protocol: list(accept_cases(protocol)) for protocol in PROTOCOLS}, accepted)
    (root / "PLAN.md").write_text(text, encoding="utf-8")
    return counts


def _reject(name: str, protocol: str, title: str, rules: tuple[str, ...], frames: list[Frame], profile: str) -> Case:
    found = _violations(protocol, profile, frames)
    first = next(one for one in found if one.rule in rules)
    expect = {"rule": first.rule, "event": first.event}
    return Case(name, protocol, "reject", title, rules, tuple(frames), profile, None, expect)


def _violations(protocol: str, profile: str, frames: list[Frame]) -> list[Any]:
    check = StreamCheck(protocol, profile)
    for frame in frames:
        check.feed(frame.encode())
    return check.finish()


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


if __name__ == "__main__":
    print(build(golden_root()))
