"""A cache and sessions whose rows can be read by eye, for tests of the resident tier."""

from __future__ import annotations

import itertools

import numpy as np

from zllm_ref.cache import Admission, Hit, PrefixCache, StateLayout, Terminal

BLOCK = 8
LINEAR = StateLayout(block_tokens=BLOCK, bytes_per_token=10, fixed_bytes=0, cuttable=True)
RINGS = StateLayout(block_tokens=BLOCK, bytes_per_token=10, fixed_bytes=70, cuttable=False)


class Session:
    """A state whose row at position i is simply the tokens up to i: whatever a hit hands out can be checked by eye."""

    def __init__(self, ids: list[int], has_fixed: bool = False, fails_at: int | None = None) -> None:
        self.ids = ids
        self.has_fixed = has_fixed
        self.fails_at = fails_at
        self.copied: list[tuple[int, int]] = []

    def copy_rows(self, start: int, end: int) -> object:
        if self.fails_at is not None and end > self.fails_at:
            raise OSError("the device went away")
        self.copied.append((start, end))
        return [tuple(self.ids[: position + 1]) for position in range(start, end)]

    def copy_fixed(self) -> object | None:
        return ("fixed", tuple(self.ids)) if self.has_fixed else None


def make_cache(layout: StateLayout = LINEAR, capacity_bytes: int = 100_000, **options: object) -> PrefixCache:
    numbers = itertools.count()
    return PrefixCache(layout, capacity_bytes, identity="model", new_cache_id=lambda: f"cache_{next(numbers)}", **options)


def array(ids: list[int]) -> np.ndarray:
    return np.array(ids, dtype=np.int32)


def rows_of(hit: Hit | None) -> list[tuple[int, ...]]:
    """What the session buffer holds after the copies; also proves that the ranges are gapless and in order."""
    rows: list[tuple[int, ...]] = []
    if hit is not None:
        for use in hit.blocks:
            assert use.start == len(rows)
            rows.extend(use.payload[: use.num_rows])
        assert len(rows) == hit.length
    return rows


def run(
    cache: PrefixCache,
    prompt: list[int],
    answer: list[int] | None = None,
    namespace: str = "",
    cache_id: str | None = None,
) -> tuple[Admission, Terminal | None]:
    """One whole request that succeeds; its hit is checked row by row against the prompt."""
    ids = prompt + (answer or [])
    admission = cache.admit(namespace, array(prompt), reserve_bytes=len(ids) * 10 + cache.layout.fixed_bytes, cache_id=cache_id)
    assert admission is not None
    cache.check()
    length = admission.hit.length if admission.hit else 0
    assert rows_of(admission.hit) == [tuple(prompt[: position + 1]) for position in range(length)]
    assert length < len(prompt)
    terminal = cache.commit(admission, array(ids), Session(ids, has_fixed=cache.layout.fixed_bytes > 0))
    cache.check()
    cache.release(admission)
    cache.check()
    return admission, terminal
