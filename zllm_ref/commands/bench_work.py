"""What a benchmark measures: the same work, in the same numbers, for this project and for every peer."""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

FIRST_ID, LAST_ID = 300, 20_000
"""Prompts are drawn from the middle of the vocabulary: no marker, no end of text, and every model here has them."""


FIGURES = ("prefill", "decode", "first-token", "stall", "ssd", "invariance")
"""Groups of figures that can be measured alone."""
PREFIX_SEED = 900
"""Of the prompt that goes to disk and comes back; the next seeds are what follows it."""


@dataclass(frozen=True)
class BenchWork:
    """Lengths in tokens. Every figure is the median of `num_repeats` samples, each with a prompt that nobody saw before."""

    prefill_lengths: tuple[int, ...] = (1000,)
    """Beside `prefix_length`, whose cold first token gives its own rate."""
    prefix_length: int = 4000
    """Of the prompt whose first token is timed: cold, with the prefix still in memory, and with the prefix on disk."""
    suffix_length: int = 20
    """What follows the prefix where that is saved, and is new."""
    decode_prompt_length: int = 64
    decode_length: int = 128
    num_streams: int = 4
    num_repeats: int = 3
    figures: tuple[str, ...] = FIGURES

    @property
    def context_length(self) -> int:
        """The most tokens that one sequence ever has."""
        prompts = (*self.prefill_lengths, self.prefix_length + self.suffix_length, self.decode_prompt_length)
        return max(prompts) + self.decode_length + 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BenchWork:
        return cls(**{**value, "prefill_lengths": tuple(value["prefill_lengths"]), "figures": tuple(value["figures"])})


Figures = dict[str, Any]
"""`prefill_tokens_per_second {"1000", "4000"}`, `decode_tokens_per_second`, `decode_tokens_per_second_4_streams`,
`ttft_cold_seconds`, `ttft_resident_seconds`, `ttft_ssd_seconds`, `ttft_ssd_dropped_seconds`, `ssd_write_seconds`, `ssd_bytes`,
`stall_seconds`; None where a peer has no such thing, and no key where it was not asked for."""


def with_prefix_rate(figures: Figures, work: BenchWork) -> Figures:
    """The figures with the rate of the long prefill: its samples are the cold first tokens."""
    if "ttft_cold_seconds" in figures and "prefill_tokens_per_second" in figures:
        rates = {**figures["prefill_tokens_per_second"]}
        rates[str(work.prefix_length)] = work.prefix_length / figures["ttft_cold_seconds"]
        return {**figures, "prefill_tokens_per_second": rates}
    return figures


def prompt_ids(length: int, seed: int) -> list[int]:
    """A prompt of `length` tokens that shares not even its first token with the prompt of the next seed."""
    draw = random.Random(seed)
    return [FIRST_ID + seed % (LAST_ID - FIRST_ID), *(draw.randrange(FIRST_ID, LAST_ID) for _ in range(length - 1))]


def decode_rate(arrivals: Sequence[Sequence[float]]) -> float:
    """Tokens a second of streams that ran together, from the times at which each token of each stream arrived.

    The first token of a stream belongs to its prefill: it starts the clock and is not counted.
    """
    num_tokens = sum(len(stream) - 1 for stream in arrivals)
    return num_tokens / (max(stream[-1] for stream in arrivals) - min(stream[0] for stream in arrivals))


def median(samples: Sequence[float]) -> float:
    return float(statistics.median(samples))


def counted(step: str, work: BenchWork) -> Iterator[int]:
    """In a child process: `range(num_repeats)`, each number after the parent gave the turn by a line on our input."""
    for number in range(work.num_repeats):
        print(json.dumps({"progress": [step, number, work.num_repeats]}), flush=True)
        sys.stdin.readline()
        yield number
