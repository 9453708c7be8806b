"""One stream from bytes to violations: decoder, grammar, laws, and the unary answer where there is one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from conformance.checker.laws import laws_for
from conformance.checker.laws.messages import MessagesLaws
from conformance.checker.sse import Frame, SseDecoder
from conformance.checker.unary_check import check_unary, compare_with_unary
from conformance.grammar import DONE_MARKER, SessionMachine, Violation, load_grammar
from conformance.requirements import levels_for

_MAX_REPORTS_A_RULE = 5
_CHUNK = 1 << 16


class StreamCheck:
    """Feed the body of a streamed answer, then `finish`. `violations` holds the first few of each rule."""

    def __init__(
        self,
        protocol: str,
        profile: str = "default",
        request: dict[str, Any] | None = None,
        unary: dict[str, Any] | None = None,
    ) -> None:
        machine = load_grammar(protocol).start(profile)
        assert not isinstance(machine, SessionMachine)
        self.protocol = protocol
        self.profile = profile
        self.violations: list[Violation] = []
        self.differences: list[Violation] = []
        """Of `violations` those where the stream and its unary answer differ."""
        self.num_suppressed = 0
        self.num_events = 0
        self._levels = levels_for(profile)
        self._decoder = SseDecoder()
        self._machine = machine
        self._laws = laws_for(protocol, dict(self._levels), request)
        self._unary = unary
        self._counts: dict[str, int] = {}
        if unary is not None:
            self._laws.replacement_level = None
            self._laws.may_hold_replacement_character = "\ufffd" in json.dumps(unary, ensure_ascii=False)
            if isinstance(self._laws, MessagesLaws):
                self._laws.keeps_input = True

    @property
    def num_comments(self) -> int:
        return self._decoder.num_comments

    def feed(self, chunk: bytes) -> None:
        for frame in self._decoder.feed(chunk):
            self._observe(frame)

    def finish(self) -> list[Violation]:
        """The end of the body: what is missing, what does not add up. Returns all violations."""
        for frame in self._decoder.finish():
            self._observe(frame)
        self._keep(self._machine.finish())
        self._laws.finish()
        if self._unary is not None:
            self._keep(check_unary(self.protocol, self._unary, self.profile))
            self._drain()
            compare_with_unary(self.protocol, self._laws, self._unary)
            self.differences = list(self._laws.found)
        self._drain()
        return self.violations

    def _observe(self, frame: Frame) -> None:
        self.num_events += 1
        if frame.fault is not None:
            self._report("T2", "frame", "whole, UTF-8, fields of an event stream", frame.fault)
        if frame.data == DONE_MARKER:
            self._keep(self._machine.accept(frame.event, DONE_MARKER))
            return
        try:
            payload = json.loads(frame.data)
        except ValueError as error:
            self._skip(f"{frame.data[:80]!r}: {error}" if frame.fault is None else None)
            return
        except RecursionError:
            self._skip("JSON nested too deeply")
            return
        if not isinstance(payload, dict):
            self._skip(frame.data[:80])
            return
        found = self._machine.accept(frame.event, payload)
        if found:
            self._keep(found)
        kind = self._machine.grammar.kind_of(payload)
        if isinstance(kind, str):
            self._laws.event_number = self.num_events
            self._laws.observe(kind, payload)
            if self._laws.found:
                self._drain()

    def _skip(self, got: str | None) -> None:
        """A frame that cannot be read still counts as one."""
        self._machine.event_number += 1
        if got is not None:
            self._report("T2", "data", "one JSON object", got)

    def _drain(self) -> None:
        found, self._laws.found = self._laws.found, []
        self._keep(found)

    def _report(self, rule: str, at: str, expected: str, got: str) -> None:
        self._keep([Violation(rule, self.num_events, at, expected, got, self._levels.get(rule, "MUST"))])

    def _keep(self, found: Iterable[Violation]) -> None:
        for violation in found:
            count = self._counts[violation.rule] = self._counts.get(violation.rule, 0) + 1
            if count <= _MAX_REPORTS_A_RULE:
                self.violations.append(violation)
            else:
                self.num_suppressed += 1


def check_file(
    path: Path,
    protocol: str,
    profile: str = "default",
    request: dict[str, Any] | None = None,
    unary: dict[str, Any] | None = None,
) -> StreamCheck:
    """Checks an `.sse` file, reading it in pieces. Raises OSError where it cannot be read."""
    check = StreamCheck(protocol, profile, request, unary)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            check.feed(chunk)
    check.finish()
    return check
