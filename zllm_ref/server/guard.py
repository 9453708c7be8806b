"""The published grammar, walked beside every stream: a frame that it refuses is our bug, and never leaves (design §3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from conformance.grammar import DONE_MARKER, Machine, load_grammar
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.sse import Frame

_logger = logging.getLogger(__name__)
_GRAMMAR_PROFILES = {Profile.OPENRESPONSES: "openresponses", Profile.DEEPSEEK: "deepseek"}


class GrammarBroken(ApiError):
    """A frame of our own broke the grammar. The client is told that the fault is ours, the log is told which rule."""


class Guard:
    """One stream's machine. Judges the text that goes out, not the values it was made from."""

    def __init__(self, protocol: str, request_id: str, profile: Profile) -> None:
        machine = load_grammar(protocol).start(_GRAMMAR_PROFILES.get(profile, "default"))
        assert isinstance(machine, Machine)
        self._machine = machine
        self._request_id = request_id

    def check(self, frames: Iterable[Frame]) -> None:
        """Raises GrammarBroken at the first frame that the grammar refuses at the level MUST."""
        for frame in frames:
            payload = DONE_MARKER if frame.is_done else frame.payload
            for violation in self._machine.accept(frame.event, payload):
                if violation.level == "MUST":
                    _logger.error("request=%s broke the grammar: %s; frame %s", self._request_id, violation, frame.data[:500])
                    raise GrammarBroken(
                        ErrorKind.INTERNAL, "The server made an answer that breaks its own protocol, and stopped it."
                    )
