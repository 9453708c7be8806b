"""A short text of a custom tool's grammar, for a model that dictates instead of thinking.

A search over the grammar's own masks: forced text in one step, of many characters that may come a few of each kind. States that
allow what nothing before them allowed go first, so that a loop is left soon; among those the shorter texts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from llguidance import LLMatcher

from zllm_ref.fence.mask import ids_of

_MOST_STATES = 300
_FEW = 16
"""So many characters are all tried; of more, two of each kind."""


@dataclass(frozen=True, slots=True)
class _State:
    """Where the grammar leaves a choice (or may end): `text` led there, `allowed` may follow."""

    text: bytes
    matcher: Any
    forced: bytes
    allowed: bytes


def shortest_text(start: LLMatcher, pieces: Sequence[bytes]) -> str | None:
    """A text that the grammar accepts, or None where no short one was found. `pieces`: the bytes of every token."""
    order = count()
    expanded: Counter[bytes] = Counter()
    first = _settled(start.deep_copy(), b"", pieces)
    waiting: list[tuple[int, int, int, _State]] = [(0, len(first.text), next(order), first)]
    num_states = 0
    while waiting and num_states < _MOST_STATES:
        familiar, length, _, state = heapq.heappop(waiting)
        if state.matcher.is_accepting():
            return state.text.decode("utf-8", "replace")
        if expanded[state.allowed] > familiar:
            heapq.heappush(waiting, (expanded[state.allowed], length, next(order), state))
            continue
        expanded[state.allowed] += 1
        num_states += 1
        for one in _following(state, pieces):
            heapq.heappush(waiting, (expanded[one.allowed], len(one.text), next(order), one))
    return None


def _following(state: _State, pieces: Sequence[bytes]) -> Iterator[_State]:
    """One state for each way on; characters after which the same may follow are one way."""
    seen: set[tuple[bytes, bytes, bool]] = set()
    for token_id in _tried(ids_of(np.frombuffer(state.allowed, dtype=np.int32)), pieces):
        matcher = state.matcher.deep_copy()
        if matcher.try_consume_tokens([token_id]) != 1:
            continue
        one = _settled(matcher, state.text + pieces[token_id], pieces)
        key = (one.forced, one.allowed, matcher.is_accepting())
        if key not in seen:
            seen.add(key)
            yield one


def _settled(matcher: Any, text: bytes, pieces: Sequence[bytes]) -> _State:
    """Behind what must follow, unless the text may end before that."""
    forced = b""
    while not matcher.is_accepting():
        ids = list(matcher.compute_ff_tokens())
        if not ids or matcher.try_consume_tokens(ids) != len(ids):
            break
        forced += b"".join(pieces[token_id] for token_id in ids)
    return _State(text + forced, matcher, forced, bytes(matcher.compute_bitmask()))


def _tried(ids: Sequence[int], pieces: Sequence[bytes]) -> Iterator[int]:
    """Single characters of ASCII; where there are none, the shortest pieces."""
    spelled = {pieces[token_id]: token_id for token_id in reversed(ids) if token_id < len(pieces) and pieces[token_id]}
    characters = sorted(piece for piece in spelled if len(piece) == 1 and piece < b"\x80")
    if not characters:
        characters = sorted(spelled, key=lambda piece: (len(piece), piece))[:_FEW]
    elif len(characters) > _FEW:
        kinds: Counter[str] = Counter()
        kept = []
        for character in characters:
            kinds[_kind(character)] += 1
            if kinds[_kind(character)] <= 2:
                kept.append(character)
        characters = sorted(kept, key=lambda character: not character.isalnum())
    for piece in characters:
        yield spelled[piece]


def _kind(character: bytes) -> str:
    """Blanks and marks are few, and each may be what leads on: every one is a kind of its own, except controls."""
    if character.isdigit():
        return "digit"
    if character.isupper():
        return "upper"
    if character.islower():
        return "lower"
    return character.decode() if character in b" \n" or character.decode().isprintable() else "control"
