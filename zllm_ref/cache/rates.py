"""Restore or recompute, decided by what was measured here: disks, codecs and models differ too much for a constant.

seconds to restore = bytes / restore rate + one wait        seconds to compute = tokens / prefill rate
"""

from __future__ import annotations

_WEIGHT = 0.25
"""How much the newest measurement counts against all before."""


class MeasuredRates:
    """Moving averages of two speeds; called from one thread."""

    def __init__(self) -> None:
        self.restore_bytes_per_second: float | None = None
        self.prefill_tokens_per_second: float | None = None

    def observe_restore(self, num_bytes: int, seconds: float) -> None:
        """A restore of so many bytes took so long."""
        if num_bytes > 0 and seconds > 0:
            self.restore_bytes_per_second = _averaged(self.restore_bytes_per_second, num_bytes / seconds)

    def observe_prefill(self, num_tokens: int, seconds: float) -> None:
        """A prefill of so many tokens took so long."""
        if num_tokens > 0 and seconds > 0:
            self.prefill_tokens_per_second = _averaged(self.prefill_tokens_per_second, num_tokens / seconds)

    def restore_seconds(self, num_bytes: int) -> float | None:
        """How long a restore would take; None: none was measured yet."""
        return num_bytes / self.restore_bytes_per_second if self.restore_bytes_per_second is not None else None

    def is_restore_worth_it(self, num_bytes: int, num_tokens: int) -> bool:
        """Reading so many bytes is faster than computing so many tokens; unknown speeds speak for reading, which measures it."""
        if self.restore_bytes_per_second is None or self.prefill_tokens_per_second is None:
            return True
        return num_bytes / self.restore_bytes_per_second < num_tokens / self.prefill_tokens_per_second


def _averaged(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)
