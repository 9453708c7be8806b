"""`truncation: auto`: where a conversation does not fit, its oldest rounds are left out, never its instructions.

system… │ user … assistant │ user … assistant tool assistant │ user            a round begins with a user's message
          └── dropped first                                    └── never dropped
"""

from __future__ import annotations

from dataclasses import replace

from zllm_ref.canonical.message import Message, Role
from zllm_ref.canonical.request import Request

_KEPT = (Role.SYSTEM, Role.DEVELOPER)


def num_rounds(request: Request) -> int:
    return len(_round_starts(request.messages))


def without_oldest(request: Request, count: int) -> Request:
    """The request without its `count` oldest rounds; instructions that stand among them stay."""
    starts = _round_starts(request.messages)
    if not 0 <= count < len(starts):
        raise ValueError(f"count: got {count}, allowed 0 to {len(starts) - 1}")
    cut = starts[count] if count else 0
    kept = tuple(message for message in request.messages[:cut] if message.role in _KEPT)
    return replace(request, messages=kept + request.messages[cut:])


def _round_starts(messages: tuple[Message, ...]) -> list[int]:
    return [index for index, message in enumerate(messages) if message.role is Role.USER]
