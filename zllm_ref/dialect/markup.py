"""Tags as data: literal text and markers in a row, and one alphabet in which a parser can search for both.

A marker that has an id is written in the parser's buffer as one code point out of the surrogate range, which no decoded text
can hold: so text that spells a marker and the marker itself differ in every comparison. A marker without an id (text mode) is
written as its spelling: there the two cannot be told apart, and rendering has to refuse what would be read back differently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from zllm_ref.fence.grammar import Marker

Framing: TypeAlias = tuple[str | Marker, ...]
"""A tag or separator: plain text (never a marker, whatever it spells) and markers, in order."""

_FIRST_CODE = 0xD800


class Alphabet:
    """Spells the markers of one dialect for one vocabulary. `ids` None: everything by spelling (reading plain text).

    `silent` markers frame turns, results and reasoning: where one of their ids stands in what is said, it is left out.
    """

    def __init__(self, markers: Sequence[str], ids: Mapping[str, int] | None = None, silent: Collection[str] = ()) -> None:
        self._codes: dict[str, str] = {}
        self._spellings: dict[int, str] = {}
        self._said: dict[int, str] = {}
        for index, name in enumerate(dict.fromkeys(markers)):
            has_id = ids is not None and name in ids
            self._codes[name] = chr(_FIRST_CODE + index) if has_id else name
            if has_id:
                self._spellings[_FIRST_CODE + index] = name
                self._said[_FIRST_CODE + index] = "" if name in silent else name

    def code(self, marker: Marker) -> str:
        """How the marker stands in the buffer."""
        return self._codes[marker.name]

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all markers that have an id."""
        return tuple(chr(code) for code in self._spellings)

    def of_framing(self, framing: Framing) -> str:
        return "".join(piece if isinstance(piece, str) else self.code(piece) for piece in framing)

    @property
    def silent_codes(self) -> tuple[str, ...]:
        """The codes of the silent markers that have an id."""
        return tuple(chr(code) for code, said in self._said.items() if not said)

    def of_marker_text(self, spelling: str) -> str | None:
        """A marker that was generated, as it stands in the buffer; None: the dialect does not know it."""
        return self._codes.get(spelling)

    def expand(self, text: str) -> str:
        """Buffer → what is said: a code of a call's markup as its spelling, a silent one left out."""
        return text.translate(self._said) if self._said else text

    def spell(self, text: str) -> str:
        """Buffer → text for remarks: every code as its spelling."""
        return text.translate(self._spellings) if self._spellings else text


def markers_of(*framings: Framing) -> tuple[str, ...]:
    """The spellings of all markers in the framings, each once."""
    return tuple(dict.fromkeys(piece.name for framing in framings for piece in framing if isinstance(piece, Marker)))


def held_suffix(text: str, awaited: Sequence[str], start: int = 0) -> int:
    """Length of the longest end of `text[start:]` that begins (but does not complete) one of the awaited strings."""
    longest = 0
    length_left = len(text) - start
    for literal in awaited:
        for length in range(min(len(literal) - 1, length_left), longest, -1):
            if literal.startswith(text[len(text) - length :]):
                longest = length
                break
    return longest
