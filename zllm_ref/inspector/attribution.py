"""Which message of the conversation each segment of a prompt belongs to.

A segment knows who wrote it and in which role, not for which message. Renderers write messages in their order, so the texts are
found again one after another; frames between two messages belong to the one whose role they have.

    <|im_start|>user⏎  Hello  <|im_end|>⏎  <|im_start|>assistant⏎  (replay)  <|im_end|>⏎  <|im_start|>assistant⏎
    0                  0      0            1                       1         1            –
"""

from __future__ import annotations

from collections.abc import Sequence

from zllm_ref.canonical.json_value import dump_json
from zllm_ref.canonical.message import CustomToolCall, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from zllm_ref.dialect import MarkerSegment, ReplaySegment, Segment
from zllm_ref.dialect.segment import Author

_LONGEST_FRAME_TEXT = 24
_SPEECH = (Role.USER, Role.TOOL)
_SAME = {Role.DEVELOPER: Role.SYSTEM}


def part_text(part: Part) -> str:
    """What a person would call the text of a part: of a call, its arguments."""
    match part:
        case Text() | Reasoning() | ToolResult():
            return part.text
        case ToolCall():
            return dump_json(part.arguments)
        case CustomToolCall():
            return part.input


def owners(segments: Sequence[Segment], messages: Sequence[Message]) -> list[int | None]:
    """For each segment the index of its message; None: the frame around all, the tools, the prompt for an answer."""
    sure = _sure_owners(segments, messages)
    found: list[int | None] = list(sure)
    known = [index for index, owner in enumerate(sure) if owner is not None]
    for left, right in zip([None, *known], [*known, None], strict=True):
        _share_frames(segments, sure, found, left, right)
    return found


def _sure_owners(segments: Sequence[Segment], messages: Sequence[Message]) -> list[int | None]:
    """Owners of what a client wrote and what was replayed."""
    texts = [[part_text(part) for part in message.parts] for message in messages]
    roles = [_SAME.get(message.role, message.role) for message in messages]
    owner: list[int | None] = []
    current = 0
    replayed: set[int] = set()
    said: set[tuple[int, int]] = set()
    """Parts whose text was found already: the same words in a later message are that message's."""
    for segment in segments:
        role = segment.origin.role
        place: int | None = None
        if isinstance(segment, ReplaySegment):
            place = next((at for at in range(current, len(messages)) if roles[at] is Role.ASSISTANT and at not in replayed), None)
            if place is not None:
                replayed.add(place)
        elif segment.origin.author is Author.CLIENT:
            place = _place_of(segment.text, role, texts, roles, messages, current, said)
        if place is not None:
            current = max(current, place)
        owner.append(place)
    return owner


def _place_of(
    text: str,
    role: Role | None,
    texts: Sequence[Sequence[str]],
    roles: Sequence[Role],
    messages: Sequence[Message],
    current: int,
    said: set[tuple[int, int]],
) -> int | None:
    """The message that has this text: from the present one on, or in the same run of speech (results may be put in order)."""
    first = current
    while first and first < len(roles) and Role.ASSISTANT not in (roles[first], roles[first - 1]) and role in _SPEECH:
        first -= 1
    wanted = text.strip()
    fallback: int | None = None
    for at in range(first, len(messages)):
        if roles[at] is not (role or roles[at]) and not (role is Role.USER and roles[at] is Role.TOOL):
            continue
        for part, one in enumerate(texts[at]):
            if (at, part) not in said and (one == text or (wanted and one.strip() == wanted)):
                said.add((at, part))
                return at
        if at >= current and fallback is None:
            fallback = at
        if wanted and at >= current and fallback == at and _is_of_call(wanted, messages[at]):
            return at
    return fallback


def _is_of_call(text: str, message: Message) -> bool:
    """A name, a key or a value of one of the message's calls: calls are written in many small pieces."""
    return any(text.strip('"') in (call.name, part_text(call)) or text in part_text(call) for call in message.tool_calls)


def _share_frames(
    segments: Sequence[Segment], sure: Sequence[int | None], found: list[int | None], left: int | None, right: int | None
) -> None:
    """Segments between two that are sure: the frame's tail of the first, and the head of the second."""
    first = 0 if left is None else left + 1
    last = len(segments) if right is None else right
    before = None if left is None else sure[left]
    after = None if right is None else sure[right]
    if before is not None and before == after:
        found[first:last] = [before] * (last - first)
        return
    before_role = None if left is None else segments[left].origin.role
    after_role = None if right is None else segments[right].origin.role
    split = first
    if before is not None:
        split = _tail_end(segments, first, last, before_role, is_followed_by_same=before_role is after_role)
        found[first:split] = [before] * (split - first)
    if after is not None:
        start = last
        while start > split and segments[start - 1].origin.role in (after_role, None) and _is_frame(segments[start - 1]):
            start -= 1
        found[start:last] = [after] * (last - start)


def _tail_end(segments: Sequence[Segment], first: int, last: int, role: Role | None, *, is_followed_by_same: bool) -> int:
    """Where the closing frame of a message ends: at the first marker that opens another one, or with its role."""
    end = first
    num_markers = 0
    while end < last and _is_frame(segments[end]) and segments[end].origin.role in (role, None):
        if len(segments[end].text.strip()) > _LONGEST_FRAME_TEXT and not isinstance(segments[end], MarkerSegment):
            break  # instructions, not a frame
        if isinstance(segments[end], MarkerSegment):
            num_markers += 1
            if num_markers > 1 and (is_followed_by_same or segments[end].origin.role is None or last == len(segments)):
                break
        end += 1
    return end


def _is_frame(segment: Segment) -> bool:
    return segment.origin.author is Author.TEMPLATE
