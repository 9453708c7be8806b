"""Bitmasks over the vocabulary: [ceil(size / 32)] int32, bit i % 32 of word i // 32 set = token i may come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

TokenMask: TypeAlias = NDArray[np.int32]


def mask_of(ids: Iterable[int], size: int) -> TokenMask:
    """The mask that allows `ids` and nothing else. Read-only, so that it can be handed out many times."""
    return mask_of_flags(_flags(ids, size))


def mask_of_flags(flags: NDArray[np.bool_]) -> TokenMask:
    """The mask of one boolean per token. Read-only."""
    words = -(-len(flags) // 32)
    padded = np.zeros(words * 32, dtype=np.bool_)
    padded[: len(flags)] = flags
    mask = np.packbits(padded, bitorder="little").view(np.int32)
    mask.flags.writeable = False
    return mask


def every_token(size: int) -> TokenMask:
    return mask_of_flags(np.ones(size, dtype=np.bool_))


def ids_of(mask: TokenMask) -> list[int]:
    """The allowed ids, ascending. For tests and explanations."""
    return [int(index) for index in np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))]


def is_allowed(mask: TokenMask | None, token_id: int) -> bool:
    """None allows everything."""
    return mask is None or bool((int(mask[token_id >> 5]) >> (token_id & 31)) & 1)


def count_allowed(mask: TokenMask) -> int:
    return int(np.bitwise_count(mask.view(np.uint32)).sum())


def without(mask: TokenMask, ids: Iterable[int]) -> TokenMask:
    """A copy that no longer allows `ids`."""
    copy = mask.copy()
    words = copy.view(np.uint32)
    for token_id in ids:
        words[token_id >> 5] &= np.uint32(~(1 << (token_id & 31)) & 0xFFFFFFFF)
    copy.flags.writeable = False
    return copy


def _flags(ids: Iterable[int], size: int) -> NDArray[np.bool_]:
    flags = np.zeros(size, dtype=np.bool_)
    flags[list(ids)] = True
    return flags
