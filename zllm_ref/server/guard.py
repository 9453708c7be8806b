"""The published grammar, walked beside every stream: a frame that it refuses is our bug, and never leaves (design §3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from conformance.grammar import DONE_MARKER, Machine, load_grammar
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.sse import Form, Frame

_logger = logging.getLogger(__name__)
_GRAMMAR_PROFILES = {Profile.OPENRESPONSES: "openresponses", Profile.DEEPSEEK: "deepseek"}


class GrammarBroken(ApiError):
    """A frame of our own broke the grammar. The client is told that the fault is ours, the log is told which rule."""


class Guard:
    """One stream's machine. Judges the text that goes out, not the values it was made from.

    A frame that leaves the stream where it was may come again, and so may any that differs from it in its text alone, for as
    long as the stream stays there: it is held against the form that has passed, and not walked again.
    """

    def __init__(self, protocol: str, request_id: str, profile: Profile) -> None:
        machine = load_grammar(protocol).start(_GRAMMAR_PROFILES.get(profile, "default"))
        assert isinstance(machine, Machine)
        self._machine = machine
        self._request_id = request_id
        self._passed: set[Form] = set()
        """Forms that the grammar takes where the stream stands now, and that leave it there."""

    def check(self, frames: Iterable[Frame]) -> None:
        """Raises GrammarBroken at the first frame that the grammar refuses at the level MUST."""
        for frame in frames:
            if frame.form is not None and frame.form in self._passed and frame.form.fits(frame):
                self._machine.repeat()
            else:
                self._walk(frame)

    def _walk(self, frame: Frame) -> None:
        stand = self._machine.num_changes
        payload = DONE_MARKER if frame.is_done else frame.payload
        for violation in self._machine.accept(frame.event, payload):
            if violation.level == "MUST":
                _logger.error("request=%s broke the grammar: %s; frame %s", self._request_id, violation, frame.data[:500])
                raise GrammarBroken(ErrorKind.INTERNAL, "The server made an answer that breaks its own protocol, and stopped it.")
        if self._machine.num_changes != stand:
            self._passed.clear()
        elif frame.form is not None and frame.form.fits(frame):
            self._passed.add(frame.form)
