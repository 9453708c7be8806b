"""Bit comparison: equal or not, and where they part. No tolerance exists here.

`assert_bits_equal` compares representations, not values: +0 and -0 differ, and a NaN equals only the same NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def differing_bits(got: Tensor, expected: Tensor) -> int:
    """How many elements differ in any bit. Raises AssertionError where shape or dtype differ."""
    assert got.shape == expected.shape, f"shape: got {tuple(got.shape)}, expected {tuple(expected.shape)}"
    assert got.dtype == expected.dtype, f"dtype: got {got.dtype}, expected {expected.dtype}"
    return int((_as_integers(got) != _as_integers(expected)).sum())


def assert_bits_equal(name: str, got: Tensor, expected: Tensor) -> None:
    """Fails with the number of differing elements, the first differing index, both values and their distance in ulps."""
    count = differing_bits(got, expected)
    if count == 0:
        return
    left, right = _as_integers(got), _as_integers(expected)
    index = tuple(int(i) for i in (left != right).nonzero()[0])
    ulps = abs(_ordered(int(left[index]), got.element_size()) - _ordered(int(right[index]), got.element_size()))
    raise AssertionError(
        f"{name}{list(index)}: got {got[index].item()!r}, expected {expected[index].item()!r}, "
        f"{ulps} ulps apart; {count} of {got.numel()} elements differ"
    )


def assert_bits_differ(name: str, got: Tensor, expected: Tensor) -> None:
    """The negative control: fails where a comparison that must see a difference sees none."""
    assert differing_bits(got, expected) > 0, f"{name}: no bit differs, so this comparison could not have failed"


def _as_integers(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().cpu().view(_INTEGER[tensor.element_size()])


def _ordered(bits: int, size: int) -> int:
    """Float bits as an integer that counts representable values (negative floats run backwards in memory)."""
    return bits if bits >= 0 else -(bits + (1 << (8 * size - 1)))
