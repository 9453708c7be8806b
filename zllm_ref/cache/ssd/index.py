"""The snapshots in memory, ordered by their tokens: whoever shares most with a prompt is its neighbour in that order.

    order of id bytes   [1 2 3] [1 2 3 4 9] ▲ [1 2 3 5] [1 7]      ▲ where the prompt 1 2 3 4 9 9 would stand

So the longest common prefix is found by bisection: a lookup compares the prompt with log2(n) snapshots, token by token, and
hashes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from zllm_ref.cache.prefix_graph import ID_BYTES, num_common_tokens


class HasTokens(Protocol):
    """What the index holds: anything with its tokens as bytes."""

    @property
    def id_bytes(self) -> bytes: ...


Entry = TypeVar("Entry", bound=HasTokens)


class SnapshotIndex(Generic[Entry]):
    """The snapshots of one namespace; one entry for one token list."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def add(self, entry: Entry) -> None:
        """Adds the entry, in place of one with the same tokens."""
        place = self._place(entry.id_bytes)
        if place < len(self._entries) and self._entries[place].id_bytes == entry.id_bytes:
            self._entries[place] = entry
        else:
            self._entries.insert(place, entry)

    def remove(self, entry: Entry) -> None:
        """Takes exactly this entry out; another one with the same tokens stays."""
        place = self._place(entry.id_bytes)
        if place < len(self._entries) and self._entries[place] is entry:
            del self._entries[place]

    def same(self, id_bytes: bytes) -> Entry | None:
        """The entry with exactly these tokens."""
        place = self._place(id_bytes)
        if place < len(self._entries) and self._entries[place].id_bytes == id_bytes:
            return self._entries[place]
        return None

    def closest(self, id_bytes: bytes) -> tuple[Entry, int] | None:
        """The entry that shares most tokens with these, and how many; None when none shares any."""
        place = self._place(id_bytes)
        best: tuple[Entry, int] | None = None
        for entry in self._entries[max(0, place - 1) : place + 1]:
            shared = num_common_tokens(entry.id_bytes, id_bytes)
            if shared and (best is None or shared > best[1]):
                best = (entry, shared)
        return best

    def whole_prefixes(self, id_bytes: bytes) -> Iterator[Entry]:
        """All entries that these tokens begin with, the longest first.

        The neighbour before a token list either is a prefix of it or shares some; any shorter prefix is one of the shared
        tokens too, so the search goes on with these.
        """
        limit = id_bytes
        while limit:
            place = self._place(limit)
            if place < len(self._entries) and self._entries[place].id_bytes == limit:
                yield self._entries[place]
            if place == 0:
                return
            before = self._entries[place - 1].id_bytes
            shared = num_common_tokens(before, limit) * ID_BYTES
            if shared == len(limit):
                raise AssertionError("two entries with the same tokens")
            limit = limit[:shared]

    def continuations(self, id_bytes: bytes) -> Iterator[Entry]:
        """All longer entries that begin with these tokens, in order."""
        place = self._place(id_bytes)
        while place < len(self._entries) and self._entries[place].id_bytes.startswith(id_bytes):
            if len(self._entries[place].id_bytes) > len(id_bytes):
                yield self._entries[place]
            place += 1

    def _place(self, id_bytes: bytes) -> int:
        return bisect_left(self._entries, id_bytes, key=lambda entry: entry.id_bytes)
