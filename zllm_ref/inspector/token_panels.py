"""The template's segments and the tokens, on the same text axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zllm_ref.dialect import MarkerSegment, ReplaySegment
from zllm_ref.inspector.axis import Axis, Placed, Span
from zllm_ref.inspector.record import ACCEPTED, FORCED
from zllm_ref.inspector.view import View

MOST_TOKENS_A_PAGE = 10_000
TOKENS_A_PAGE = 2_000

SPECIAL, PARTIAL, OUTPUT, CACHED, IS_FORCED, IS_ACCEPTED, REPLAYED = 1, 2, 4, 8, 16, 32, 64


def segments(view: View, dialect: str) -> dict[str, Any]:
    axis = view.axis
    shown = segment_list(axis, view.owners)
    if view.output_ids:
        span = (axis.num_prompt, axis.num_tokens)
        data = axis.bytes_of(span)
        shown.append(
            {
                "index": len(shown),
                "kind": "output",
                "role": "assistant",
                "origin": "model",
                "tokens": list(span),
                "utf16": list(axis.utf16(data)),
                "bytes": list(data),
                "message": len(view.messages),
            }
        )
    return {"dialect": dialect, "segments": shown, "text": axis.text}


def segment_list(axis: Axis, owners: Sequence[int | None]) -> list[dict[str, Any]]:
    return [_segment(index, axis, placed, owner) for index, (placed, owner) in enumerate(zip(axis.placed, owners, strict=True))]


def _segment(index: int, axis: Axis, placed: Placed, owner: int | None) -> dict[str, Any]:
    segment = placed.segment
    kind = "marker" if isinstance(segment, MarkerSegment) else "replay" if isinstance(segment, ReplaySegment) else "text"
    return {
        "index": index,
        "kind": kind,
        "role": segment.origin.role.value if segment.origin.role is not None else None,
        "origin": segment.origin.author.value,
        "tokens": list(placed.tokens),
        "utf16": list(axis.utf16(placed.bytes)),
        "bytes": list(placed.bytes),
        "message": owner,
    }


def tokens(view: View, start: int, end: int | None) -> dict[str, Any]:
    """A page of columns."""
    record = view.record
    cached = record.report.cached_tokens if record.report is not None else 0
    replayed = [placed.tokens for placed in view.axis.placed if isinstance(placed.segment, ReplaySegment)]
    page = token_columns(view.axis, start, end, replayed)
    first = view.axis.num_prompt
    for offset, flags in enumerate(page["flags"]):
        place = page["start"] + offset
        if place < cached:
            flags |= CACHED
        if place >= first and place - first < len(record.how):
            how = record.how[place - first]
            flags |= (IS_FORCED if how & FORCED else 0) | (IS_ACCEPTED if how & ACCEPTED else 0)
        page["flags"][offset] = flags
    return page


def token_columns(axis: Axis, start: int, end: int | None, replayed: Sequence[Span] = ()) -> dict[str, Any]:
    """The columns that every tokenized text has; `cached`, `forced` and `accepted` are a record's own."""
    start = min(max(0, start), axis.num_tokens)
    wanted = start + TOKENS_A_PAGE if end is None else end
    end = max(start, min(wanted, start + MOST_TOKENS_A_PAGE, axis.num_tokens))
    ids = axis.ids[start:end].tolist()
    spell = axis.vocabulary.token_bytes
    pieces = [spell(token_id) for token_id in ids]
    texts: list[str | None] = []
    flags = []
    for place, piece in enumerate(pieces, start):
        whole = axis.is_whole(place)
        texts.append(piece.decode("utf-8", "replace") if whole else None)
        bits = (SPECIAL if axis.is_marker(place) else 0) | (0 if whole else PARTIAL)
        flags.append(bits | (OUTPUT if place >= axis.num_prompt else 0))
    for first, last in replayed:
        for place in range(max(first, start), min(last, end)):
            flags[place - start] |= REPLAYED
    return {
        "start": start,
        "end": end,
        "total": axis.num_tokens,
        "ids": ids,
        "bytes": [piece.hex() for piece in pieces],
        "text": texts,
        "flags": flags,
        "utf16": [list(axis.utf16(axis.bytes_of((place, place + 1)))) for place in range(start, end)],
        "segments": [axis.segment_of(place) for place in range(start, end)],
    }
