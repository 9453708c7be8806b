"""Free text in which only one thing is waited for: the trigger that opens a region, or the token that closes the reasoning.

No grammar runs here. A marker with an id is seen when its id comes. A trigger of plain text is followed byte by byte:

    text so far      … hello <tool_ca          bytes of the trigger matched: 8
    next token       "ll>\\n"                   completes it, and carries "\\n" on: the first byte of the region

A token that completes the trigger and goes on in a way that the region forbids is masked beforehand: nothing is taken back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from zllm_ref.fence.mask import TokenMask, mask_of_flags
from zllm_ref.tokenizer import Vocabulary


class TokenIndex:
    """What free text must know of a vocabulary: which ids are text, and which of them begin with given bytes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.pieces = [vocabulary.token_bytes(token_id) for token_id in range(vocabulary.size)]
        self.marker_ids = frozenset(vocabulary.markers.values()) | frozenset(vocabulary.stop_ids)
        self.is_text: NDArray[np.bool_] = np.array([bool(piece) for piece in self.pieces])
        self.is_text[list(self.marker_ids)] = False
        self.is_text.flags.writeable = False
        self.text_flags = self.is_text.tobytes()
        """`is_text` once more: reading one flag out of an array costs more than all else that a token of free text costs."""
        self._sorted: list[tuple[bytes, int]] | None = None
        self._calm: dict[tuple[bytes, bool], bytearray] = {}

    def calm(self, pattern: bytes, is_trigger: bool) -> bytearray:
        """One byte an id, for free text that waits for `pattern`: 1 where a piece changes nothing. Filled as it is used."""
        return self._calm.setdefault((pattern, is_trigger), bytearray(len(self.pieces)))

    def beginning_with(self, prefix: bytes) -> list[int]:
        """Text ids whose bytes start with `prefix` (which is not empty)."""
        ordered = self._ordered()
        low = bisect_left(ordered, (prefix, -1))
        found = []
        while low < len(ordered) and ordered[low][0].startswith(prefix):
            found.append(ordered[low][1])
            low += 1
        return found

    def containing(self, part: bytes) -> list[int]:
        return [token_id for token_id, piece in enumerate(self.pieces) if part in piece and self.is_text[token_id]]

    def _ordered(self) -> list[tuple[bytes, int]]:
        if self._sorted is None:
            self._sorted = sorted((piece, token_id) for token_id, piece in enumerate(self.pieces) if self.is_text[token_id])
        return self._sorted


class ByteScan:
    """How much of `pattern` the bytes so far end with (Knuth, Morris, Pratt)."""

    def __init__(self, pattern: bytes) -> None:
        self.pattern = pattern
        self.borders = [0] * (len(pattern) + 1)
        length = 0
        for index in range(1, len(pattern)):
            while length and pattern[index] != pattern[length]:
                length = self.borders[length]
            length += pattern[index] == pattern[length]
            self.borders[index + 1] = length

    def after(self, matched: int, data: bytes) -> int:
        """The state after `data`, matches on the way ignored."""
        for byte in data:
            matched = self._step(matched, byte)
        return matched

    def find(self, matched: int, data: bytes) -> tuple[int, int]:
        """(state, -1), or (len(pattern), index behind the first complete match)."""
        for index, byte in enumerate(data):
            matched = self._step(matched, byte)
            if matched == len(self.pattern):
                return matched, index + 1
        return matched, -1

    def _step(self, matched: int, byte: int) -> int:
        if matched == len(self.pattern):
            matched = self.borders[matched]
        while matched and self.pattern[matched] != byte:
            matched = self.borders[matched]
        return matched + (bool(self.pattern) and self.pattern[matched] == byte)


class FreeText:
    """One kind of free text. States are ints; `START` is the first.

    `trigger`  an id, or the bytes of a trigger that has none, or None: nothing is waited for
    `needs`    an id trigger is legal only directly after these bytes
    `ends`     marker ids that are legal here and end the answer
    `legal`    whether the bytes that a token carries beyond a trigger of text may begin what follows
    `masks`    False: every token is allowed and no mask is ever made
    """

    START = 0

    def __init__(
        self,
        index: TokenIndex,
        *,
        trigger: int | bytes | None,
        needs: bytes = b"",
        ends: Iterable[int] = (),
        legal: Callable[[bytes], bool] = lambda rest: False,
        masks: bool = True,
    ) -> None:
        self.trigger_id = trigger if isinstance(trigger, int) else None
        self.ends = frozenset(ends)
        self._index = index
        self._pieces = index.pieces
        self._text_flags = index.text_flags
        self._masks = masks
        self._legal = legal
        self._is_text_trigger = isinstance(trigger, bytes)
        self._scan = ByteScan(trigger if isinstance(trigger, bytes) else needs)
        self._complete = len(self._scan.pattern)
        self.calm = index.calm(self._scan.pattern, self._is_text_trigger)
        """Pieces of text after which the state is again START, where it was START before."""
        self._next: dict[tuple[int, int], int] = {}
        self._mask_of_state: dict[tuple[int, int | None], TokenMask] = {}

    def is_armed(self, state: int) -> bool:
        """The id trigger may come now."""
        return self.trigger_id is not None and state == self._complete

    def after(self, state: int, token_id: int) -> int:
        """The state after a text token; -1 - n where it completed a trigger of text and n of its bytes are left over."""
        found: int | None
        if not self._complete:
            found = state
        else:
            key = (state, token_id)
            found = self._next.get(key)
            if found is None:
                found = self._next[key] = self.after_bytes(state, self._pieces[token_id])
        if not state and not found and self._text_flags[token_id]:
            self.calm[token_id] = 1
        return found

    def after_bytes(self, state: int, data: bytes) -> int:
        if not self._is_text_trigger:
            return self._scan.after(state, data)
        matched, end = self._scan.find(state, data)
        return matched if end < 0 else -1 - (len(data) - end)

    def is_plain(self, token_id: int) -> bool:
        """A piece of text, no marker."""
        return self._text_flags[token_id] == 1

    def accepts(self, token_id: int) -> bool:
        """A token that is text, as far as this kind of text is concerned."""
        return bool(self._text_flags[token_id]) or not self._masks

    def mask(self, state: int) -> TokenMask | None:
        """The same array for the same state, so that a copy on a device can be kept."""
        return self.mask_with(state, None)

    def mask_with(self, state: int, also_id: int | None) -> TokenMask | None:
        """As `mask`, `also_id` allowed too."""
        if not self._masks:
            return None
        key = (state if self._is_text_trigger else int(state == self._complete), also_id)
        found = self._mask_of_state.get(key)
        if found is None:
            found = self._mask_of_state[key] = self._make_mask(state, also_id)
        return found

    def _make_mask(self, state: int, also_id: int | None) -> TokenMask:
        flags = self._index.is_text.copy()
        flags[list(self.ends)] = True
        if also_id is not None:
            flags[also_id] = True
        if self.is_armed(state):
            assert self.trigger_id is not None
            flags[self.trigger_id] = True
        if self._is_text_trigger:
            for token_id in self._completing(state):
                left = -1 - self.after(state, token_id)
                if left >= 0 and not self._legal(self._pieces[token_id][len(self._pieces[token_id]) - left :]):
                    flags[token_id] = False
        return mask_of_flags(flags)

    def _completing(self, state: int) -> set[int]:
        """Every token that could complete the trigger from `state` (and a few that do not)."""
        pattern = self._scan.pattern
        found = set(self._index.containing(pattern))
        matched = state
        while matched:
            found.update(self._index.beginning_with(pattern[matched:]))
            matched = self._scan.borders[matched]
        return found
