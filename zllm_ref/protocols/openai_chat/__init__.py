"""Chat Completions: the request, the chunks, the object folded from them, and the errors.

Knows: what the `chat.completion` and `chat.completion.chunk` objects look like (protocols.md 1.1, rules CH).
Must never know: how a token was made, or which socket the chunks leave by.
"""

from zllm_ref.protocols.openai_chat.request import ChatRequest, parse_request
from zllm_ref.protocols.openai_chat.response import Accumulator
from zllm_ref.protocols.openai_chat.stream import Stream

__all__ = ["Accumulator", "ChatRequest", "Stream", "parse_request"]
