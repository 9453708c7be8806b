"""A day of agent traffic against the two tiers: `ci/cache-traffic [--conversations 50] [--rounds 40]`.

Conversations share a few system prompts, grow by tool results, sometimes fork from an earlier round, and come back in a
random order; the resident budget holds a tenth of them. Compared with a cache that forgets nothing. A token has 1,024 bytes
here instead of 23,040 (SmolLM2-135M), so that a day fits into seconds; everything else is the real code on a real directory,
without its syncs.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from zllm_ref.cache import PrefixCache, StateLayout
from zllm_ref.cache.snapshot import PartRange
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache

TOKEN_BYTES = 1024
LAYOUT = StateLayout(block_tokens=128, bytes_per_token=TOKEN_BYTES, fixed_bytes=0, cuttable=True)


@dataclass(frozen=True)
class Figures:
    """What one run gave; tokens of prompts."""

    requests: int
    prompt_tokens: int
    reused_tokens: int
    reused_from_ssd: int
    distinct_tokens: int
    """Rows that exist in all, each counted once."""
    written_bytes: int
    snapshots: int
    evictions: int
    memory_halfway: int
    memory_at_end: int

    @property
    def hit_rate(self) -> float:
        return self.reused_tokens / self.prompt_tokens

    @property
    def write_amplification(self) -> float:
        """Bytes written for one byte of rows that exist."""
        return self.written_bytes / (self.distinct_tokens * TOKEN_BYTES)


def traffic(conversations: int, rounds: int, seed: int = 1) -> list[tuple[list[int], list[int]]]:
    """(prompt, answer) of every request of the day, in order."""
    generator = random.Random(seed)
    sizes = (1_500, 3_000, 6_000)
    systems = [[100_000 + kind, *(generator.randrange(50_000) for _ in range(size))] for kind, size in enumerate(sizes)]
    histories = [[list(systems[number % 3])] for number in range(conversations)]
    requests = []
    for _ in range(conversations * rounds):
        number = min(int(generator.expovariate(4 / conversations)), conversations - 1)
        number = (number + generator.randrange(conversations)) % conversations if generator.random() < 0.3 else number
        past = histories[number]
        base = past[generator.randrange(len(past))] if len(past) > 2 and generator.random() < 0.05 else past[-1]
        prompt = [*base, *(generator.randrange(50_000) for _ in range(generator.choice((40, 150, 400, 900))))]
        answer = [generator.randrange(50_000) for _ in range(generator.choice((30, 80, 250)))]
        requests.append((prompt, answer))
        past.append([*prompt, *answer])
        if len(past[-1]) > 30_000:
            histories[number] = [list(systems[number % 3])]
    return requests


def simulate(requests: Sequence[tuple[list[int], list[int]]], root: Path, resident_tokens: int, ssd_bytes: int) -> Figures:
    """Runs the day on two tiers."""
    store = SnapshotStore.open(root, ssd_bytes, identity="traffic", files=UnsyncedFiles())
    cache = TieredCache(
        LAYOUT,
        resident_tokens * TOKEN_BYTES,
        identity="traffic",
        store=store,
        codec=RowsCodec(),
        writer=AtOnce(),
        reader=AtOnce(),
    )
    return run_day(cache, requests, lambda: store.written_bytes, lambda: len(store.entries))


def simulate_unlimited(requests: Sequence[tuple[list[int], list[int]]]) -> Figures:
    """Runs the day on a resident tier that holds everything."""
    return run_day(PrefixCache(LAYOUT, 1 << 50, identity="traffic"), requests, lambda: 0, lambda: 0)


def run_day(
    cache: PrefixCache, requests: Sequence[tuple[list[int], list[int]]], written: Callable[[], int], snapshots: Callable[[], int]
) -> Figures:
    prompt_tokens = reused = from_ssd = memory_halfway = 0
    distinct: set[int] = set()
    for number, (prompt, answer) in enumerate(requests):
        ids = np.array(prompt + answer, dtype=np.int32)
        admission = None
        while admission is None:
            admission = cache.admit("", ids[: len(prompt)], reserve_bytes=len(ids) * TOKEN_BYTES)
        length = admission.hit.length if admission.hit is not None else 0
        if admission.restore is not None:
            assert isinstance(cache, TieredCache)
            restore = cache.start_restore(admission, Rows(len(ids)))
            assert cache.finish_restore(admission, restore)
            from_ssd += length
        prompt_tokens += len(prompt)
        reused += length
        cache.commit(admission, ids, Session())
        cache.release(admission)
        if isinstance(cache, TieredCache):
            cache.pump()
        distinct.update(running_hashes(ids))
        if number == len(requests) // 2:
            memory_halfway = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cache.check()
    return Figures(
        requests=len(requests),
        prompt_tokens=prompt_tokens,
        reused_tokens=reused,
        reused_from_ssd=from_ssd,
        distinct_tokens=len(distinct),
        written_bytes=written(),
        snapshots=snapshots(),
        evictions=cache.counts.evictions,
        memory_halfway=memory_halfway,
        memory_at_end=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def running_hashes(ids: np.ndarray) -> list[int]:
    """One number for each prefix: equal prefixes, equal numbers."""
    value, found = 0, []
    for token in ids.tolist():
        value = hash((value, token))
        found.append(value)
    return found


class Session:
    def copy_rows(self, start: int, end: int) -> object:
        return bytes((end - start) * TOKEN_BYTES)

    def copy_fixed(self) -> object | None:
        return None


class RowsCodec:
    """One part a block."""

    def row_part_sizes(self, num_rows: int) -> tuple[int, ...]:
        return (num_rows * TOKEN_BYTES,)

    def fixed_part_sizes(self) -> tuple[int, ...]:
        return ()

    def row_parts(self, payload: object) -> Sequence[bytes]:
        assert isinstance(payload, bytes)
        return [payload]

    def fixed_parts(self, payload: object) -> Sequence[bytes]:
        return []

    def row_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        return ((0, 1),)

    def fixed_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        return ((0, 0),)


class Rows:
    def __init__(self, num_tokens: int) -> None:
        self.memory = memoryview(bytearray(num_tokens * TOKEN_BYTES))

    def row_buffers(self, stage: int, start: int, num_rows: int) -> Sequence[memoryview]:
        return [self.memory[start * TOKEN_BYTES : (start + num_rows) * TOKEN_BYTES]]

    def fixed_buffers(self, stage: int) -> Sequence[memoryview]:
        return []

    def stage_landed(self, stage: int) -> None:
        pass


class UnsyncedFiles(Files):
    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


class AtOnce:
    def submit(self, work: Callable[[], None], /) -> object:
        work()
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20, help="requests a conversation, on average")
    args = parser.parse_args()
    requests = traffic(args.conversations, args.rounds)
    average = sum(len(prompt) + len(answer) for prompt, answer in requests) // len(requests)
    resident_tokens = average * args.conversations // 10 + 70_000  # a tenth of the conversations, and room to run one
    print(f"{len(requests)} requests of {args.conversations} conversations, {average:,} tokens each on average")
    unlimited = simulate_unlimited(requests)
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        tiered = simulate(requests, Path(directory), resident_tokens, 1 << 40)
        seconds = time.perf_counter() - started
    share = tiered.hit_rate / unlimited.hit_rate
    rows = tiered.distinct_tokens * TOKEN_BYTES
    lines = {
        "resident budget": f"{resident_tokens:,} tokens",
        "hit rate": f"{tiered.hit_rate:.2%} of prompt tokens; unlimited {unlimited.hit_rate:.2%}: {share:.1%} of it",
        "reused from SSD": f"{tiered.reused_from_ssd / tiered.reused_tokens:.1%} of what was reused",
        "evictions": f"{tiered.evictions}",
        "written": f"{tiered.written_bytes / 1e6:,.0f} MB for {rows / 1e6:,.0f} MB of distinct rows",
        "write amplification": f"{tiered.write_amplification:.3f}",
        "snapshots at the end": f"{tiered.snapshots}",
        "peak memory": f"{tiered.memory_halfway / 1024:.0f} MiB halfway, {tiered.memory_at_end / 1024:.0f} MiB at the end",
        "seconds": f"{seconds:.1f}",
    }
    for name, text in lines.items():
        print(f"{name:<22} {text}")


if __name__ == "__main__":
    main()
