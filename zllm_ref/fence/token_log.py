"""All tokens of an answer, cheap to copy: full chunks are shared by all copies, only the tail is a copy's own.

chunk | chunk | … | chunk | tail          the tail always holds the last CHUNK tokens, if there are so many
"""

from __future__ import annotations

CHUNK = 256


class TokenLog:
    """Grows at its end, shrinks at its end. `tail` may be appended to by whoever is in a hurry and calls `settle` later."""

    __slots__ = ("_base", "_chunks", "tail")

    def __init__(self) -> None:
        self._chunks: tuple[tuple[int, ...], ...] = ()
        self._base = 0
        self.tail: list[int] = []

    def __len__(self) -> int:
        return self._base + len(self.tail)

    def __getitem__(self, position: int) -> int:
        if position >= self._base:
            return self.tail[position - self._base]
        return self._chunks[position // CHUNK][position % CHUNK]

    def settle(self) -> None:
        """Moves full chunks out of the tail."""
        while len(self.tail) >= 2 * CHUNK:
            self._chunks = (*self._chunks, tuple(self.tail[:CHUNK]))
            self._base += CHUNK
            del self.tail[:CHUNK]

    def drop(self, count: int) -> None:
        """Takes the last `count` tokens away. Raises ValueError where there are fewer."""
        left = len(self) - count
        if left < 0:
            raise ValueError(f"rollback: got {count} tokens, allowed no more than were advanced")
        while self._base and left < self._base + CHUNK:
            self._base -= CHUNK
            self.tail[:0] = self._chunks[-1]
            self._chunks = self._chunks[:-1]
        del self.tail[left - self._base :]

    def clone(self) -> TokenLog:
        copy = TokenLog()
        copy._chunks, copy._base, copy.tail = self._chunks, self._base, self.tail.copy()
        return copy
