"""Ids → text, one id at a time, never half a character."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TypeAlias

from zllm_ref.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TextPiece:
    text: str


@dataclass(frozen=True, slots=True)
class MarkerPiece:
    """A marker was generated: an id with a meaning, not its spelling."""

    token_id: int
    text: str


Piece: TypeAlias = TextPiece | MarkerPiece

_UTF8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Holds at most the bytes of one unfinished character (T3, CH20). O(1) a token, whatever came before.

    The pieces of a stream, joined, are the text of its ids decoded at once; bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = _UTF8("replace")

    def push(self, token_id: int) -> tuple[Piece, ...]:
        """The pieces that are certain now: none, one text, one marker, or the broken rest of a text and then a marker."""
        marker = self._vocabulary.marker_text(token_id)
        if marker is not None:
            return (*self.finish(), MarkerPiece(token_id, marker))
        text = self._decoder.decode(self._vocabulary.token_bytes(token_id))
        return (TextPiece(text),) if text else ()

    def finish(self) -> tuple[Piece, ...]:
        """The end of the stream: an unfinished character comes out as U+FFFD. The detokenizer is then as new."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return (TextPiece(text),) if text else ()

    @property
    def held_bytes(self) -> bytes:
        """Bytes of a character that is not complete yet."""
        return self._decoder.getstate()[0]

    def clone(self) -> Detokenizer:
        copy = Detokenizer(self._vocabulary)
        copy._decoder.setstate(self._decoder.getstate())
        return copy
