"""Laws: what must hold between the events of one stream, beyond their order.

One module a protocol, same skeleton: `observe(kind, payload)` for each event, `finish()` at the end, `outline()` for the
comparison with the unary answer. Knows values. Leaves order and fields to the grammar, bytes to the decoder: a law looks
only at what has the right type, so that one fault is not told twice.
"""

from conformance.checker.laws.chat import ChatLaws
from conformance.checker.laws.law import Laws
from conformance.checker.laws.messages import MessagesLaws
from conformance.checker.laws.responses import ResponsesLaws

__all__ = ["ChatLaws", "Laws", "MessagesLaws", "ResponsesLaws", "laws_for"]


def laws_for(protocol: str, levels: dict[str, str], request: dict[str, object] | None = None) -> Laws:
    """The laws of a protocol, for one stream."""
    kinds: dict[str, type[Laws]] = {"chat": ChatLaws, "responses": ResponsesLaws, "messages": MessagesLaws}
    return kinds[protocol](levels, request)
