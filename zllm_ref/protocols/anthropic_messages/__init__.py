"""Anthropic Messages: the request, the events, the message folded from them, and the errors.

Knows: content blocks, their events and the `message` object (protocols.md 1.3, rules AN).
Must never know: how a token was made, or which socket the events leave by.
"""

from zllm_ref.protocols.anthropic_messages.request import MessagesRequest, parse_count_request, parse_request
from zllm_ref.protocols.anthropic_messages.response import Accumulator
from zllm_ref.protocols.anthropic_messages.stream import Stream

__all__ = ["Accumulator", "MessagesRequest", "Stream", "parse_count_request", "parse_request"]
