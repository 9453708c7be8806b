"""The token axis of one request, and the text that its tokens spell: where each begins and ends, in three units.

    tokens   |  0  |  1  |   2   |  3  |        prompt, then the first choice's answer
    bytes    0     3     5       9    12        UTF-8, markers spelled out
    utf16    0     3     5       7    10        what JavaScript's strings count in
    segments |---- A ----|-- B ---|-- C -|      of the prompt, and one of the answer

A token that holds a part of a character has that character's span, as its neighbour with the rest has. Bytes that are no UTF-8
are shown as U+FFFD, one for each broken stretch, as Python's `replace` does.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from zllm_ref.dialect import MarkerSegment, ReplaySegment, Segment, TextSegment
from zllm_ref.tokenizer.vocabulary import Vocabulary

Span = tuple[int, int]
"""[start, end): the end is not included."""
Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class Placed:
    """A segment of the prompt on the axis. `tokens`: every token that it has a byte of."""

    segment: Segment
    tokens: Span
    bytes: Span


class Axis:
    """Immutable; made once for a record and a number of answer tokens."""

    def __init__(
        self, vocabulary: Vocabulary, segments: Sequence[Segment], prompt_ids: Sequence[int] | NDArray[np.int32],
        output_ids: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.vocabulary = vocabulary
        self.num_prompt = len(prompt_ids)
        self.ids = np.concatenate([np.asarray(prompt_ids, np.int32), np.asarray(output_ids, np.int32)])
        spell = vocabulary.token_bytes
        pieces = [spell(token_id) for token_id in self.ids.tolist()]
        self.data = b"".join(pieces)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        self.starts: Offsets = np.concatenate([[0], np.cumsum(lengths)])
        """Byte offset of each token, and the end of the last: [tokens + 1]."""
        self._segments = segments

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def num_output(self) -> int:
        return len(self.ids) - self.num_prompt

    @cached_property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @cached_property
    def placed(self) -> tuple[Placed, ...]:
        """The prompt's segments in order, without gaps."""
        placed: list[Placed] = []
        token = 0
        for is_text, group in groupby(self._segments, lambda segment: isinstance(segment, TextSegment)):
            run = list(group)
            if is_text:
                token = self._place_texts(placed, run, token)
                continue
            for segment in run:
                count = len(segment.ids) if isinstance(segment, ReplaySegment) else 1
                span = (int(self.starts[token]), int(self.starts[token + count]))
                placed.append(Placed(segment, (token, token + count), span))
                token += count
        return tuple(placed)

    def _place_texts(self, placed: list[Placed], run: list[Segment], token: int) -> int:
        """Texts that touch: one text to the tokenizer. → the first token behind them."""
        start = int(self.starts[token])
        ends = _ends(run, self.data, start)
        begin = start
        last = token
        for segment, end in zip(run, ends, strict=True):
            first = int(np.searchsorted(self.starts, begin, "right")) - 1
            last = int(np.searchsorted(self.starts, end, "left"))
            placed.append(Placed(segment, (first, max(first, last)) if end > begin else (first, first), (begin, end)))
            begin = end
        return last

    # units

    @cached_property
    def _units(self) -> tuple[Offsets, Offsets]:
        """For each byte, and the end: UTF-16 offset of the character that it belongs to, and of that character's end."""
        data = np.frombuffer(self.data, np.uint8)
        begins = (data & 0xC0) != 0x80
        units = np.where(data >= 0xF0, 2, 1)
        for start, end in _broken(self.data):
            begins[start:end] = False
            begins[start] = True
            units[start] = 1
        sizes = np.where(begins, units, 0)
        ends = np.cumsum(sizes)
        starts = ends - np.where(begins, units, 0)
        # a continuation byte belongs to the character that began before it
        place = np.maximum.accumulate(np.where(begins, np.arange(len(data)), 0)) if len(data) else np.zeros(0, np.int64)
        first = starts[place] if len(data) else starts
        last = ends[place] if len(data) else ends
        total = int(ends[-1]) if len(data) else 0
        return np.append(first, total), np.append(last, total)

    @cached_property
    def _borders(self) -> tuple[NDArray[np.bool_], Offsets]:
        """For each byte, and the end: whether a character begins here, and how many broken bytes lie before."""
        data = np.frombuffer(self.data, np.uint8)
        begins = (data & 0xC0) != 0x80
        broken = np.zeros(len(data), np.int64)
        for start, end in _broken(self.data):
            begins[start:end] = False
            begins[start] = True
            broken[start:end] = 1
        return np.append(begins, True), np.concatenate([[0], np.cumsum(broken)])

    def utf16(self, span: Span) -> Span:
        """A byte span in UTF-16 units, widened to whole characters."""
        first, last = self._units
        start, end = span
        return (int(first[start]), int(last[end - 1]) if end > start else int(first[start]))

    @property
    def num_utf16(self) -> int:
        return int(self._units[0][-1])

    def bytes_of(self, tokens: Span) -> Span:
        return (int(self.starts[tokens[0]]), int(self.starts[tokens[1]]))

    def tokens_of(self, span: Span) -> Span:
        """The tokens that have a byte in a byte span; an empty span: an empty one."""
        if span[1] <= span[0]:
            place = int(np.searchsorted(self.starts, span[0], "right")) - 1
            return (place, place)
        first = int(np.searchsorted(self.starts, span[0], "right")) - 1
        return (first, int(np.searchsorted(self.starts, span[1], "left")))

    def text_of(self, tokens: Span) -> str:
        start, end = self.bytes_of(tokens)
        return self.data[start:end].decode("utf-8", "replace")

    def is_whole(self, token: int) -> bool:
        """The token's bytes are whole characters."""
        start, end = self.bytes_of((token, token + 1))
        begins, broken = self._borders
        return bool(begins[start] and begins[end] and broken[start] == broken[end])

    def is_marker(self, token: int) -> bool:
        return self.vocabulary.marker_text(int(self.ids[token])) is not None

    def segment_of(self, token: int) -> int:
        """Index of the first segment that the token belongs to; the answer's is the one behind the prompt's."""
        if token >= self.num_prompt:
            return len(self.placed)
        return int(np.searchsorted(self._token_ends, token, "right"))

    @cached_property
    def _token_ends(self) -> Offsets:
        return np.maximum.accumulate(np.array([one.tokens[1] for one in self.placed] or [0], np.int64))


def _ends(run: Sequence[Segment], data: bytes, start: int) -> list[int]:
    """Where each text of a run ends in the bytes of its tokens. Some tokenizers compose characters (NFC) first."""
    ends, place = [], start
    for segment in run:
        place += len(segment.text.encode())
        ends.append(place)
    whole = "".join(segment.text for segment in run)
    if data[start:place] == whole.encode():
        return ends
    ends, text = [], ""
    for segment in run:
        text += segment.text
        ends.append(min(len(data), start + len(unicodedata.normalize("NFC", text).encode())))
    return ends


def _broken(data: bytes) -> list[Span]:
    """Stretches that are no UTF-8, each shown as one U+FFFD."""
    try:
        data.decode()
        return []
    except UnicodeDecodeError:
        pass
    broken: list[Span] = []
    place = 0
    while place < len(data):
        try:
            data[place:].decode()
            break
        except UnicodeDecodeError as error:
            broken.append((place + error.start, place + error.end))
            place += error.end
    return broken


def is_marker(segment: Segment) -> bool:
    return isinstance(segment, MarkerSegment)
