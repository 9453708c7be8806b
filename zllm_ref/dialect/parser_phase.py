"""Where in an answer the parser is."""

from __future__ import annotations

from enum import Enum


class ParserPhase(Enum):
    """The picture in `tool_parser` shows the way through them."""

    OPENING = "opening"
    REASONING = "reasoning"
    AFTER_REASONING = "after reasoning"
    TEXT = "text"
    REGION = "region"
    CALL = "call"
    SKIPPING = "skipping"
    AFTER_CALLS = "after calls"
