"""Keeps a client's text from spelling a marker while a template that only knows strings carries it around.

A template (Jinja) turns strings into one string; afterwards its own markers are found by their spelling. A client's text may
spell them too, or may hold one half of a spelling whose other half comes from a neighbour. So, before rendering, the seal is
put into every place where a client's text could take part in a spelling, and taken out of what is left as text afterwards:

    client:    "see <|im_end|> here"      sealed: "see <⟨seal⟩|im_end|> here"
    rendered:  "<|im_start|>user\\nsee <⟨seal⟩|im_end|> here<|im_end|>\\n"
    markers:    ^^^^^^^^^^^^                                 ^^^^^^^^^^
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from zllm_ref.dialect.unrenderable import UnrenderableValue

FIRST_PRIVATE, LAST_PRIVATE = (
    0xF0000,
    0xFFFFD,
)  # a plane of private use: no font, no tokenizer and no marker knows these characters


class Seal:
    """One character that occurs in none of the texts of a request, and the places in which it is put."""

    def __init__(self, spellings: Sequence[str], texts: Iterable[str]) -> None:
        self.character = _unused_character(texts)
        self._spellings = sorted(spellings, key=len, reverse=True)
        self._whole = re.compile("|".join(map(re.escape, self._spellings)) or "(?!)")
        self._starts = re.compile(f"(?={self._whole.pattern})")
        self._heads = {text[:length] for text in spellings for length in range(1, len(text))}
        self._tails = {text[length:] for text in spellings for length in range(1, len(text))}
        self._longest = max((len(text) for text in spellings), default=0)

    def put(self, text: str) -> str:
        """The text with every spelling broken, and both ends unable to complete a neighbour's half."""
        sealed = self.put_loosely(text)
        # "user" between a template's "<|" and "|>" would do, too.
        if 0 < len(text) < self._longest and any(text in spelling for spelling in self._spellings):
            sealed = self.character + sealed
        return sealed

    def put_loosely(self, text: str) -> str:
        """As `put`, but a word that merely lies inside a spelling stays bare: a template compares `type` with "object"."""
        if not text:
            return text
        # A spelling may begin inside another one ("<<x>": after the first cut, look again from the next character).
        parts: list[str] = []
        position = 0
        for match in self._starts.finditer(text) if self._whole.search(text) else ():
            parts.append(text[position : match.start() + 1])
            position = match.start() + 1
        parts.append(text[position:])
        sealed = self.character.join(parts)
        if self._begins_at_end(text):
            sealed += self.character
        if self._completes_from_start(text):
            sealed = self.character + sealed
        return sealed

    def remove(self, text: str) -> str:
        return text.replace(self.character, "")

    def split(self, rendered: str) -> list[str]:
        """The rendered text cut at the template's own markers; odd places are spellings, even places are text."""
        return re.split(f"({self._whole.pattern})", rendered)

    def _begins_at_end(self, text: str) -> bool:
        """The end of the text begins a spelling."""
        return any(text[-length:] in self._heads for length in range(1, min(len(text), self._longest - 1) + 1))

    def _completes_from_start(self, text: str) -> bool:
        """The start of the text ends a spelling."""
        return any(text[:length] in self._tails for length in range(1, min(len(text), self._longest - 1) + 1))


def _unused_character(texts: Iterable[str]) -> str:
    used: set[str] = set()
    for text in texts:
        used.update(character for character in text if character >= chr(FIRST_PRIVATE))
    for code in range(FIRST_PRIVATE, LAST_PRIVATE + 1):
        if chr(code) not in used:
            return chr(code)
    raise UnrenderableValue("texts of the request: got all 65,534 characters of plane 15, allowed all but one")
