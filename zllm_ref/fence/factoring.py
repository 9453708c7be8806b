"""Alternatives of a rule, and what they share at their beginning.

None of these is ever changed after it was made; they are not frozen because thousands of them are made for one toolset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from zllm_ref.fence.grammar import Parameter


@dataclass(slots=True)
class Text:
    """Text that stands literally; it can be cut anywhere."""

    text: str


@dataclass(slots=True)
class Symbol:
    """A marker, or a call of a rule. `uses_bits`: the call hands the parameter on."""

    text: str
    uses_bits: bool = False


Part: TypeAlias = "Text | Symbol"


@dataclass(slots=True)
class Alternative:
    """`bits`: legal while one of these parameters is missing; `closes`: legal once the required ones are there.

    Neither: always legal.
    """

    parts: tuple[Part, ...]
    bits: frozenset[int] = frozenset()
    closes: bool = False

    def after(self, whole: int, characters: int) -> Alternative:
        """Without its first `whole` parts and so many characters of the next, which is text."""
        left = self.parts[whole:]
        if characters:
            left = (*((Text(rest),) if (rest := left[0].text[characters:]) else ()), *left[1:])
        return Alternative(left, self.bits, self.closes)


def is_prefix_free(alternatives: Sequence[Alternative]) -> bool:
    """All begin with text, and no such text is the beginning of another: a lexer tells them apart as they are."""
    texts = []
    for one in alternatives:
        first = one.parts[0] if one.parts else None
        if not isinstance(first, Text):
            return False
        texts.append(first.text)
    texts.sort()
    return not any(after.startswith(before) for before, after in pairwise(texts))


def shared_beginning(alternatives: Sequence[Alternative]) -> tuple[int, int]:
    """How many parts all have in common at the beginning, and how many characters of the text that follows."""
    first, others = alternatives[0].parts, [one.parts for one in alternatives[1:]]
    for whole, part in enumerate(first):
        if any(len(parts) <= whole or type(parts[whole]) is not type(part) for parts in others):
            return whole, 0
        texts = [parts[whole].text for parts in others]
        if any(text != part.text for text in texts):
            return whole, _common_length([part.text, *texts]) if isinstance(part, Text) else 0
    return len(first), 0


def joined(before: tuple[Part, ...], after: tuple[Part, ...]) -> tuple[Part, ...]:
    """Both, text that meets text made one."""
    if before and after:
        last, first = before[-1], after[0]
        if isinstance(last, Text) and isinstance(first, Text):
            return (*before[:-1], Text(last.text + first.text), *after[1:])
    return (*before, *after)


@dataclass(frozen=True, slots=True)
class CountedItems:
    """The rules being written count the items of a Repeat in their parameter."""

    maximum: int

    def condition(self, one: Alternative) -> str:
        return "" if one.closes or not one.bits else f" %if lt(_, {self.maximum})"


@dataclass(frozen=True, slots=True)
class ParameterBits:
    """The rules being written hold one bit per parameter that stands already."""

    order: tuple[Parameter, ...]

    def condition(self, one: Alternative) -> str:
        count = len(self.order)
        if one.closes and len(one.bits) == count:
            return ""  # all there: it may close; one missing: it may go on
        conditions: list[str] = []
        if one.bits:
            low, high = min(one.bits), max(one.bits) + 1
            if len(one.bits) == high - low:
                conditions.append(f"not(is_ones([{low}:{high}]))" if high - low > 1 else f"bit_clear({low})")
            else:
                conditions.append(_nested("or", [f"bit_clear({index})" for index in sorted(one.bits)]))
        if one.closes:
            required = [index for index in range(count) if self.order[index].required]
            if not required:
                return ""
            conditions.append(_nested("and", [f"bit_set({index})" for index in required]))
        return f" %if {_nested('or', conditions)}" if conditions else ""


Counting: TypeAlias = "ParameterBits | CountedItems | None"


def _common_length(texts: list[str]) -> int:
    low, high = min(texts), max(texts)
    length = 0
    while length < len(low) and length < len(high) and low[length] == high[length]:
        length += 1
    return length


def _nested(operator: str, conditions: list[str]) -> str:
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return f"{operator}({_nested(operator, conditions[:half])}, {_nested(operator, conditions[half:])})"
