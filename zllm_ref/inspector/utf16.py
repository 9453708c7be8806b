"""Places in a Python string as JavaScript counts them."""

from __future__ import annotations

import numpy as np


class Utf16Places:
    """Python counts characters, JavaScript UTF-16 units: they part company behind the first emoji."""

    def __init__(self, text: str) -> None:
        self._starts = None
        if text and max(text) > "\uffff":
            code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
            self._starts = np.concatenate([[0], np.cumsum(np.where(code_points > 0xFFFF, 2, 1))])

    def __call__(self, place: int) -> int:
        return place if self._starts is None else int(self._starts[place])

    def span(self, start: int, end: int) -> list[int]:
        return [self(start), self(end)]
