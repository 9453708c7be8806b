"""What to run next: a pure decision over what is waiting.

Prefill goes in chunks between decode rounds, so that a long prompt never makes running streams wait longer than one chunk.
The length of a chunk is chosen by measured speed. It may be: rows do not depend on where a prompt is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

CHUNK_SECONDS_BESIDE_STREAMS = 0.2
CHUNK_SECONDS_ALONE = 2.5
"""Nobody waits for a token; long chunks compute a tenth more tokens a second (docs/decisions/0005)."""
_SMALLEST_CHUNK = 32
_LARGEST_CHUNK = 1024
_CHUNK_STEP = 32
_BORDERS = (512, 128)
_FIRST_CHUNK_ALONE = 512
"""While no speed was measured yet and no stream waits."""
_KEYS_WORTH_ONE_ROW = 1300
"""Attention over this many keys costs about as much as the rest of a row (measured on the default model)."""


@dataclass(frozen=True)
class PrefillChunk:
    """Run the next `num_rows` prompt rows of the prompt at `index`."""

    index: int
    num_rows: int


@dataclass(frozen=True)
class DecodeRound:
    """One step of all decoding sequences."""


@dataclass(frozen=True)
class Idle:
    """Nothing to do."""


Action: TypeAlias = PrefillChunk | DecodeRound | Idle


@dataclass(frozen=True)
class PromptProgress:
    """A prompt on its way into the state: rows done, rows left."""

    done: int
    left: int


class PrefillSpeed:
    """Measured seconds per unit of prefill work; a unit is one row over no keys."""

    def __init__(self) -> None:
        self._seconds_per_unit: float | None = None

    @staticmethod
    def units(done: int, num_rows: int) -> float:
        return num_rows * (1.0 + (done + num_rows / 2) / _KEYS_WORTH_ONE_ROW)

    def observe(self, done: int, num_rows: int, seconds: float) -> None:
        """A chunk of `num_rows` after `done` took so long. Newer chunks count half."""
        if num_rows < _SMALLEST_CHUNK and self._seconds_per_unit is not None:
            return
        measured = seconds / self.units(done, num_rows)
        before = self._seconds_per_unit
        self._seconds_per_unit = measured if before is None else (before + measured) / 2

    def rows_within(self, done: int, left: int, seconds: float) -> int:
        """How many of the `left` rows fit into `seconds`, in whole steps; at least the smallest chunk."""
        if self._seconds_per_unit is None:
            return min(left, _FIRST_CHUNK_ALONE if seconds >= CHUNK_SECONDS_ALONE else 2 * _SMALLEST_CHUNK)
        seconds_per_row = self._seconds_per_unit * (1.0 + done / _KEYS_WORTH_ONE_ROW)
        # a clock too coarse to see a chunk measures 0
        rows = int(seconds / seconds_per_row) if seconds < _LARGEST_CHUNK * seconds_per_row else _LARGEST_CHUNK
        rows = max(_SMALLEST_CHUNK, rows // _CHUNK_STEP * _CHUNK_STEP)
        if left <= rows:
            return left
        # a chunk that ends where attention's tiles end leaves no short tile behind
        for border in _BORDERS:
            aligned = (done + rows) // border * border - done
            if aligned >= rows // 2:
                return aligned
        return rows


def schedule(prompts: list[PromptProgress], num_decoding: int, last: Action, speed: PrefillSpeed) -> Action:
    """The next action. With prompts and streams both waiting they take turns; prompts go first come, first served."""
    if not prompts:
        return DecodeRound() if num_decoding else Idle()
    if num_decoding and isinstance(last, PrefillChunk):
        return DecodeRound()
    seconds = CHUNK_SECONDS_BESIDE_STREAMS if num_decoding else CHUNK_SECONDS_ALONE
    first = prompts[0]
    return PrefillChunk(0, speed.rows_within(first.done, first.left, seconds))
