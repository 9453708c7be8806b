"""A runtime without a device: requests against a `TieredCache`, every row of every hit checked against its tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.cache.toy_state import LAYERS, LINEAR, ROW, ToyCodec, ToySession, ToyTarget, open_store
from zllm_ref.cache import Admission, StateLayout, Terminal
from zllm_ref.cache.near_miss import NearMiss
from zllm_ref.cache.restore import Restore
from zllm_ref.cache.tiered import TieredCache


class InlineWorker:
    """Does the work at once."""

    def submit(self, work: Callable[[], None], /) -> object:
        work()
        return None


class HeldWorker:
    """Does the work when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None], /) -> object:
        self.waiting.append(work)
        return None

    def run_one(self) -> None:
        self.waiting.pop(0)()


@dataclass
class ToyServer:
    """One process with one cache; `restart` gives the next process on the same directory."""

    root: Path
    layout: StateLayout = LINEAR
    capacity_bytes: int = 1_000_000
    ssd_bytes: int = 10_000_000
    identity: str = "model"
    options: dict[str, object] = field(default_factory=dict)
    writer: InlineWorker | HeldWorker = field(default_factory=InlineWorker)
    reader: InlineWorker | HeldWorker = field(default_factory=InlineWorker)
    near_misses: list[NearMiss] = field(default_factory=list)
    prefix: str = "cache"

    def __post_init__(self) -> None:
        numbers = itertools.count()
        self.has_fixed = self.layout.fixed_bytes > 0
        self.store = open_store(self.root, self.ssd_bytes, self.identity, prefix_rounds=4)
        self.cache = TieredCache(
            self.layout,
            self.capacity_bytes,
            identity=self.identity,
            store=self.store,
            codec=ToyCodec(has_fixed=self.has_fixed),
            writer=self.writer,
            reader=self.reader,
            on_near_miss=self.near_misses.append,
            new_cache_id=lambda: f"{self.prefix}_{next(numbers)}",
            **self.options,
        )

    def restart(self, **changes: object) -> ToyServer:
        self.settle()
        self.store.close()
        settings = {
            "root": self.root,
            "layout": self.layout,
            "capacity_bytes": self.capacity_bytes,
            "ssd_bytes": self.ssd_bytes,
            "identity": self.identity,
            "options": self.options,
            "prefix": self.prefix + "x",
        }
        return ToyServer(**{**settings, **changes})

    def settle(self) -> None:
        """Until nothing is left to write."""
        for _ in range(1000):
            self.cache.pump()
            if not self.cache.is_writing:
                return
            if isinstance(self.writer, HeldWorker) and self.writer.waiting:
                self.writer.run_one()
        raise AssertionError("the writer never ends")

    def admit(self, prompt: Sequence[int], growth: int = 0, namespace: str = "", cache_id: str | None = None) -> Admission | None:
        reserve_bytes = (len(prompt) + growth) * LAYERS * ROW + self.layout.fixed_bytes
        ids = np.array(prompt, dtype=np.int32)
        admission = self.cache.admit(namespace, ids, reserve_bytes=reserve_bytes, cache_id=cache_id)
        self.cache.check()
        return admission

    def fill(self, admission: Admission, prompt: Sequence[int], restore: Restore | None = None) -> int:
        """Copies resident blocks, restores the rest; tokens that need not be computed, all rows of them checked."""
        hit = admission.hit
        if hit is None:
            return 0
        target = ToyTarget(len(prompt), self.cache.num_stages)
        for use in hit.blocks:
            for layer in range(LAYERS):
                target.rows[layer][use.start * ROW : (use.start + use.num_rows) * ROW] = use.payload[layer][: use.num_rows * ROW]
        fixed = hit.fixed
        if admission.restore is not None:
            restore = self.cache.start_restore(admission, target)
            assert restore.wait_drained(60)
            if not self.cache.finish_restore(admission, restore):
                return 0
            fixed = [bytes(part) for part in target.fixed] if self.has_fixed else None
        assert target.holds(prompt[: hit.length])
        if self.has_fixed:
            assert fixed == ToySession(list(prompt[: hit.length]), True).copy_fixed()
        return hit.length

    def ask(
        self, prompt: Sequence[int], answer: Sequence[int] = (), namespace: str = "", cache_id: str | None = None
    ) -> tuple[int, Terminal | None, str | None]:
        """One request from start to end: tokens reused, the terminal, and the tier."""
        prompt = list(prompt)
        admission = self.admit(prompt, len(answer), namespace, cache_id)
        for _ in range(50):
            if admission is not None:
                break
            self.settle()
            admission = self.admit(prompt, len(answer), namespace, cache_id)
        assert admission is not None, "it waits although nobody runs"
        length = self.fill(admission, prompt)
        tier = admission.hit.tier if admission.hit is not None and length else None
        before = self.cache.resident_bytes + self.cache.pinned_bytes
        for unit in admission.units:
            self.cache.commit_unit(admission, np.array(prompt[:unit], dtype=np.int32), ToySession(prompt[:unit], self.has_fixed))
        ids = [*prompt, *answer]
        terminal = self.cache.commit(admission, np.array(ids, dtype=np.int32), ToySession(ids, self.has_fixed))
        self.cache.check()
        grown = self.cache.resident_bytes + self.cache.pinned_bytes - before
        assert grown <= admission.keep_bytes, "more was kept than was set aside"
        self.cache.release(admission)
        self.cache.check()
        return length, terminal, tier
