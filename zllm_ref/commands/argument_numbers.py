"""Numbers on the command line: each kind with its bounds, refused with what was got and what is allowed."""

from __future__ import annotations

import argparse
import math

_UNITS = {
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "b": 1,
}


def byte_count(text: str) -> int:
    """`512MiB`, `4GiB`, `100000`."""
    lowered = text.strip().lower()
    unit = next((unit for unit in _UNITS if lowered.endswith(unit)), "")
    value = _float(lowered[: len(lowered) - len(unit)]) * _UNITS.get(unit, 1)
    if not 0 <= value < 1 << 62:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed a number of bytes such as 4GiB or 500000000")
    return int(value)


def positive(text: str) -> int:
    value = _int(text)
    if value is None or value < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed a whole number from 1 on")
    return value


def count(text: str) -> int:
    value = _int(text)
    if value is None or value < 0:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed a whole number from 0 on")
    return value


def port(text: str) -> int:
    value = _int(text)
    if value is None or not 0 <= value <= 65_535:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed a port from 0 to 65535 (0 picks a free one)")
    return value


def seconds(text: str) -> float:
    value = _float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed a number of seconds above 0")
    return value


def pause(text: str) -> float:
    value = _float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed a number of seconds from 0 on")
    return value


def price(text: str) -> float:
    value = _float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed money for a million tokens")
    return value


def share(text: str) -> float:
    value = _float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed a share from 0 to 1")
    return value


def _int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _float(text: str) -> float:
    """NaN where it is no number: no comparison with it holds."""
    try:
        return float(text)
    except ValueError:
        return math.nan
