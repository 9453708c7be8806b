"""A place in text that is still arriving: what can be decided is taken, what could become a tag is held.

Nothing here depends on how the text was cut into pieces: a decision is made when no further text could change it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from zllm_ref.dialect.markup import held_suffix


class Wait(Enum):
    """More text decides."""

    WAIT = "wait"


WAIT = Wait.WAIT


@dataclass(frozen=True, slots=True)
class Tag:
    """A string to look for. With a `tolerant` pattern (repair mode) its misspellings are found, too.

    `beginning` matches, at the end of a text, whatever could still become a match of `tolerant`.
    """

    literal: str
    tolerant: re.Pattern[str] | None = None
    beginning: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Which tag was found, and how it was spelled."""

    tag: Tag
    spelling: str

    @property
    def is_repaired(self) -> bool:
        return self.spelling != self.tag.literal


class Cursor:
    """Unread text. `record` starts to keep what is taken, for the day it turns out to be no markup."""

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._is_final = False
        self._record: list[str] | None = None

    def append(self, text: str) -> None:
        self._text = self._text[self._position :] + text
        self._position = 0

    def end(self) -> None:
        """No more text will come: nothing is held any longer."""
        self._is_final = True

    @property
    def is_final(self) -> bool:
        return self._is_final

    @property
    def rest(self) -> str:
        return self._text[self._position :]

    @property
    def is_empty(self) -> bool:
        return self._position >= len(self._text)

    @property
    def text(self) -> str:
        """The text that `position` counts in, for readers that walk it themselves and then `take_to`."""
        return self._text

    @property
    def position(self) -> int:
        return self._position

    def record(self) -> None:
        self._record = []

    def recorded(self) -> str:
        """What was taken since `record`; recording ends."""
        text, self._record = "".join(self._record or ()), None
        return text

    def take(self, count: int) -> str:
        return self.take_to(min(self._position + count, len(self._text)))

    def take_to(self, position: int) -> str:
        text = self._text[self._position : position]
        self._position = position
        if self._record is not None:
            self._record.append(text)
        return text

    def skip_whitespace(self) -> None:
        position = self._position
        while position < len(self._text) and self._text[position] in " \t\r\n":
            position += 1
        self.take_to(position)

    def match(self, tags: Sequence[Tag], after: int = 0) -> Found | Wait | None:
        """The tag that stands `after` characters from here, and takes both; None: none of them does and none could.

        Where two begin alike, the longer, once the text shows which.
        """
        best: Found | None = None
        is_open = False
        for tag in tags:
            spelling = self._spelling_at(tag, self._position + after)
            if spelling is not None:
                if best is None or len(spelling) > len(best.spelling):
                    best = Found(tag, spelling)
            elif self._could_begin(tag, self._position + after):
                is_open = True
        if is_open and not self._is_final:
            return WAIT
        if best is not None:
            self.take(after + len(best.spelling))
        return best

    def until(self, tags: Sequence[Tag], lead: str = "") -> tuple[str, Found | None]:
        """Takes text up to the first of the tags, and the tag (where two begin alike, the longer); while that is not certain,
        the text that is certainly before any.

        `lead` is framing before a tag: it is held together with what could become one.
        """
        first: tuple[int, Found] | None = None
        for tag in tags:
            found = self._search(tag)
            if found is not None and (first is None or (found[0], -len(found[1])) < (first[0], -len(first[1].spelling))):
                first = (found[0], Found(tag, found[1]))
        held = 0 if self._is_final else self._held(tags)
        if first is not None and first[0] < len(self._text) - held:  # else another may begin earlier, or be longer
            text = self.take_to(first[0])
            self.take(len(first[1].spelling))
            return text, first[1]
        if held and self._text.endswith(lead, self._position, len(self._text) - held):
            held += len(lead)
        return self.take_to(len(self._text) - held), None

    def _spelling_at(self, tag: Tag, position: int) -> str | None:
        if self._text.startswith(tag.literal, position):
            return tag.literal
        if tag.tolerant is not None:
            match = tag.tolerant.match(self._text, position)
            if match:
                return match.group()
        return None

    def _search(self, tag: Tag) -> tuple[int, str] | None:
        if tag.tolerant is not None:
            match = tag.tolerant.search(self._text, self._position)
            return (match.start(), match.group()) if match else None
        index = self._text.find(tag.literal, self._position)
        return (index, tag.literal) if index >= 0 else None

    def _could_begin(self, tag: Tag, position: int) -> bool:
        """The rest of the text from here on is the beginning of the tag."""
        left = len(self._text) - position
        if left < len(tag.literal) and tag.literal.startswith(self._text[position:]):
            return True
        return tag.beginning is not None and bool(tag.beginning.match(self._text, position))

    def _held(self, tags: Sequence[Tag]) -> int:
        held = held_suffix(self._text, [tag.literal for tag in tags], self._position)
        for tag in tags:
            match = tag.beginning.search(self._text, self._position) if tag.beginning is not None else None
            if match and match.group():
                held = max(held, len(self._text) - match.start())
        return held
