"""Runs every mutant through the checker and counts: killed, survived, equivalent, per rule."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Final

from conformance.checker.stream_check import StreamCheck
from conformance.checker.websocket_check import WebSocketCheck
from conformance.golden.build import accept_cases, kind_of, session_accepts
from conformance.golden.case import Case
from conformance.golden.session_case import PROTOCOL as SESSIONS
from conformance.golden.sessions import mutated, session_mutants
from conformance.golden.story import Frame
from conformance.mutants.faults import all_faults, base_stories, render
from conformance.mutants.faults_websocket import WEBSOCKET_FAULTS, websocket_lines
from conformance.mutants.systematic import Mutant, mutants_of
from conformance.requirements import load_requirements

_OPTIONAL: Final = (
    "obfuscation",
    "service_tier",
    "system_fingerprint",
    "usage",
    "choices.*.logprobs*",
    "choices.*.delta.content",
    "choices.*.delta.refusal",
    "usage.*_details*",
    "usage.cache_*",
    "usage.input_tokens",
    "message.usage.cache_*",
    "*.is_error",
    "content_block.citations",
    "response.error",
    "response.incomplete_details",
    "response.store",
    "response.usage",
    "part.logprobs",
)
"""Fields that no rule owes: they may be absent, so that renaming them changes nothing."""


@dataclass
class Score:
    """`survivors` name what nothing saw; `alarms` are goldens that should be silent and are not."""

    planted: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    systematic_kills: Counter[str] = field(default_factory=Counter)
    num_systematic: int = 0
    num_systematic_killed: int = 0
    num_equivalent: int = 0
    survivors: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    @property
    def is_perfect(self) -> bool:
        return not self.survivors and not self.alarms

    def rows(self) -> Iterator[tuple[str, int, int, int]]:
        """(rule, planted, killed, systematic mutants that this rule saw)."""
        for rule in sorted(set(self.planted) | set(self.systematic_kills), key=_by_number):
            yield rule, self.planted[rule], self.killed[rule], self.systematic_kills[rule]


def score_all(is_exhaustive: bool = False) -> Score:
    """Named faults, systematic mutants, WebSocket faults. Exhaustive: every field of every event of every golden."""
    score = Score()
    score_faults(score)
    for protocol in ("chat", "responses", "messages"):
        score_systematic(score, protocol, is_exhaustive)
    score_websocket(score)
    score_sessions(score, is_exhaustive)
    return score


def score_faults(score: Score) -> None:
    """Each named fault must be told by one of its rules."""
    for fault in all_faults():
        frames, unary = render(fault.protocol, base_stories(fault.protocol)[fault.base])
        fault.edit(frames)
        if fault.edit_unary is not None:
            fault.edit_unary(unary)
        found = _rules(fault.protocol, fault.profile, frames, unary if fault.needs_unary else None)
        score.planted[fault.rules[0]] += 1
        if found & set(fault.rules):
            score.killed[fault.rules[0]] += 1
        else:
            score.survivors.append(
                f"{fault.id} {fault.what}: expected {' or '.join(fault.rules)}, got {sorted(found) or 'silence'}"
            )


def score_systematic(score: Score, protocol: str, is_exhaustive: bool = False) -> None:
    """Every golden is silent; every systematic mutant that means something is seen."""
    seen: set[tuple[str, str, str]] = set()
    for case in accept_cases(protocol):
        alarms = _rules(protocol, case.profile, case.frames, case.unary)
        if alarms:
            score.alarms.append(f"{case.id}: {sorted(alarms)}")
        for mutant in mutants_of(case):
            key = (mutant.operator, mutant.kind, mutant.path)
            if mutant.path and not is_exhaustive and key in seen:
                continue
            seen.add(key)
            found = _rules(protocol, case.profile, mutant.frames, case.unary)
            if not found and is_equivalent(case, mutant):
                score.num_equivalent += 1
                continue
            score.num_systematic += 1
            if found:
                score.num_systematic_killed += 1
                score.systematic_kills.update(found)
            else:
                score.survivors.append(f"{case.id} event {mutant.event}: {mutant.operator} {mutant.kind} {mutant.path}".rstrip())


def score_sessions(score: Score, is_exhaustive: bool = False) -> None:
    """Every golden of a connection is silent; every systematic mutant of one that means something is seen."""
    seen: set[tuple[str, str, str]] = set()
    for session in session_accepts():
        if alarms := session.check().violations:
            score.alarms.append(f"{session.id}: {sorted({one.rule for one in alarms})}")
        frames = tuple(Frame(None, message) for side, message in session.lines if side == "received")
        for mutant in session_mutants(session):
            key = (mutant.operator, mutant.kind, mutant.path)
            if mutant.path and not is_exhaustive and key in seen:
                continue
            seen.add(key)
            found = {one.rule for one in replace(session, lines=mutated(session, mutant)).check().violations}
            case = Case(session.id, "responses", "accept", "", (), frames)
            if not found and (is_equivalent(case, mutant) or is_equivalent(replace(case, protocol=SESSIONS), mutant)):
                score.num_equivalent += 1
                continue
            score.num_systematic += 1
            score.num_systematic_killed += bool(found)
            score.systematic_kills.update(found)
            if not found:
                score.survivors.append(f"{session.id} message {mutant.event}: {mutant.operator} {mutant.kind} {mutant.path}")


def score_websocket(score: Score) -> None:
    """The session's own rules, on captures of a connection."""
    for what, rules, edit in [("right", (), None), *WEBSOCKET_FAULTS]:
        lines = websocket_lines()
        if edit is not None:
            edit(lines)
        check = WebSocketCheck()
        for line in lines:
            check.observe(line if isinstance(line, str) else json.dumps(line))
        found = {violation.rule for violation in check.finish()}
        if edit is None:
            if found:
                score.alarms.append(f"websocket: {sorted(found)}")
            continue
        score.planted[rules[0]] += 1
        if found & set(rules):
            score.killed[rules[0]] += 1
        else:
            score.survivors.append(_missed(f"websocket {what}", rules, found))


def _missed(what: str, rules: tuple[str, ...], found: set[str]) -> str:
    return f"{what}: expected {' or '.join(rules)}, got {sorted(found) or 'silence'}"


def is_equivalent(case: Case, mutant: Mutant) -> bool:
    """True where `equivalent.json` gives a reason why this mutant means the same."""
    for row in _equivalent_rows():
        is_named = (
            fnmatch.fnmatchcase(case.protocol, row["protocol"])
            and fnmatch.fnmatchcase(mutant.operator, row["operator"])
            and fnmatch.fnmatchcase(mutant.kind.replace("[", "("), row["kind"].replace("[", "("))
            and (fnmatch.fnmatchcase(mutant.path, row["path"]) if row["path"] else not mutant.path)
        )
        if is_named and ("when" not in row or _holds(row["when"], case, mutant)):
            return True
    return False


def _holds(condition: str, case: Case, mutant: Mutant) -> bool:
    frame = case.frames[mutant.event - 1]
    following = case.frames[mutant.event] if mutant.event < len(case.frames) else None
    if condition == "no_unary":
        return case.unary is None
    if condition == "optional_field":
        return any(fnmatch.fnmatchcase(mutant.path, pattern) for pattern in _OPTIONAL)
    if condition == "empty_piece":
        return _piece(frame) == "" or (mutant.operator == "swap" and following is not None and _piece(following) == "")
    if condition == "pieces_commute":
        first, second = _piece(frame), _piece(following) if following is not None else None
        return isinstance(first, str) and isinstance(second, str) and first + second == second + first
    if condition == "empty_object":
        return _piece(frame) == "{}"
    if condition == "next_is_call":
        return "tool_calls" in str(_at(following, "choices"))
    if condition == "other_choice":
        return following is not None and _choice(frame) != _choice(following)
    if condition == "other_lane":
        return following is not None and _at(frame, "stream_id") != _at(following, "stream_id")
    if condition == "no_stop_reason":
        return _at(frame, "delta", "stop_reason") is None
    if condition in ("citation", "compaction"):
        return str(_at(frame, "delta", "type")).startswith(condition) or str(_at(following, "delta", "type")).startswith(
            condition
        )
    if condition == "other_tool":
        index = _at(frame, "index")
        starts = [one for one in case.frames if _at(one, "type") == "content_block_start" and _at(one, "index") == index]
        return bool(starts) and str(_at(starts[0], "content_block", "type")) in ("server_tool_use", "mcp_tool_use")
    if condition.startswith("next_is_"):
        if following is None:
            return False
        wanted = condition.removeprefix("next_is_")
        return wanted in kind_of(case.protocol, following) or (isinstance(following.data, dict) and wanted in following.data)
    raise ValueError(f"condition: got {condition!r}")


def _piece(frame: Frame) -> object:
    choices = _at(frame, "choices")
    if isinstance(choices, list) and choices and isinstance(choices[0]["delta"].get("content"), str):
        return choices[0]["delta"]["content"]
    for path in (("delta", "text"), ("delta", "thinking"), ("delta", "partial_json"), ("delta",)):
        value = _at(frame, *path)
        if isinstance(value, str):
            return value
    return None


def _choice(frame: Frame) -> object:
    choices = _at(frame, "choices")
    return choices[0]["index"] if isinstance(choices, list) and choices else None


def _at(frame: Frame | None, *keys: str) -> Any:
    value: Any = frame.data if frame is not None else None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _rules(protocol: str, profile: str, frames: Iterable[Frame], unary: dict[str, Any] | None) -> set[str]:
    check = StreamCheck(protocol, profile, unary=unary)
    check.feed(b"".join(frame.encode() for frame in frames))
    return {violation.rule for violation in check.finish()}


def _equivalent_rows() -> list[dict[str, str]]:
    text = resources.files("conformance.mutants").joinpath("equivalent.json").read_text(encoding="utf-8")
    rows: list[dict[str, str]] = json.loads(text)["equivalent"]
    return rows


def _by_number(rule: str) -> tuple[str, int]:
    letters = rule.rstrip("0123456789")
    return letters, int(rule[len(letters) :] or 0)


def rules_without_a_fault(*planted: Counter[str]) -> list[str]:
    """Rules that are checked and that no fault has been planted for by name, in a stream or in a server."""
    by_any: set[str] = set().union(*planted)
    return [rule.id for rule in load_requirements().values() if rule.check != "excluded" and rule.id not in by_any]
