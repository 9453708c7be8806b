"""Responses: the request, the events, the response object, the errors.

Knows: items, their events and the `response` object (protocols.md 1.2, rules RS).
Must never know: how a token was made, where past responses are kept (they are handed in as `History`), or which socket the events
leave by: SSE and WebSocket carry the same list.
"""

from zllm_ref.protocols.openai_responses.request import History, ResponsesRequest, parse_request
from zllm_ref.protocols.openai_responses.response import Accumulator
from zllm_ref.protocols.openai_responses.stream import Stream

__all__ = ["Accumulator", "History", "ResponsesRequest", "Stream", "parse_request"]
