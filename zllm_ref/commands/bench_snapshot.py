"""First token after a restore from SSD, measured as a restart would see it: in a new process, files cold and files warm.

The benchmark's process computes the prefix and writes its snapshot; a process of its own then reads it back. Before the
first figure the system is told to forget the files' pages (POSIX_FADV_DONTNEED).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.commands.bench_work import PREFIX_SEED, BenchWork, Figures, counted, median, prompt_ids
from zllm_ref.commands.page_cache import drop_pages
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.restore import TensorCodec

FirstToken = Callable[[RuntimeLoop, list[int]], tuple[float, int]]
"""Runs a prompt for one token: (seconds to it, prompt tokens that were cached)."""


def measure_snapshots(model: Model, order: Mapping[str, Any], first_token: FirstToken) -> Figures:
    """`ssd_write_seconds`, `ssd_bytes`. The new process tells its figures itself, on the output that it has from us."""
    work = BenchWork.from_json(order["work"])
    with tempfile.TemporaryDirectory(prefix="zllm-bench-") as directory:
        with _loop(model, Path(directory)) as loop:
            first_token(loop, prompt_ids(work.prefix_length, PREFIX_SEED))
            assert isinstance(loop.cache, TieredCache)
            while loop.cache.pump() or loop.cache.is_writing:
                time.sleep(0.001)
            seconds = loop.cache.ssd_counts.save_seconds
            size = loop.cache.store.used_bytes
        command = [sys.executable, "-m", "zllm_ref.commands.bench_own", json.dumps({**order, "snapshots": directory})]
        subprocess.run(command, check=True)
    return {"ssd_write_seconds": seconds, "ssd_bytes": size}


def read_back(model: Model, order: Mapping[str, Any], first_token: FirstToken) -> Figures:
    """In the new process: `ttft_ssd_seconds` (warm) and `ttft_ssd_dropped_seconds`."""
    work = BenchWork.from_json(order["work"])
    root = Path(order["snapshots"])
    with _loop(model, root) as loop:
        first_token(loop, prompt_ids(16, 1))  # the first call allocates and chooses kernels
    dropped, warm = [], []
    for n in counted("first token from SSD", work):
        drop_pages(root)
        dropped.append(_once(model, root, work, 2 * n, first_token))
        warm.append(_once(model, root, work, 2 * n + 1, first_token))
    return {"ttft_ssd_seconds": median(warm), "ttft_ssd_dropped_seconds": median(dropped)}


def _once(model: Model, root: Path, work: BenchWork, n: int, first_token: FirstToken) -> float:
    prompt = prompt_ids(work.prefix_length, PREFIX_SEED) + prompt_ids(work.suffix_length, PREFIX_SEED + 1 + n)
    with _loop(model, root) as loop:
        seconds, cached = first_token(loop, prompt)
        assert isinstance(loop.cache, TieredCache)
        assert cached == work.prefix_length, f"{cached} of {work.prefix_length} tokens came from the snapshot"
        assert loop.cache.ssd_counts.hits == 1
    return seconds


@contextmanager
def _loop(model: Model, root: Path) -> Iterator[RuntimeLoop]:
    """A loop with empty memory on the directory. Nothing but the prefix is ever written: later states stay in memory."""
    with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(1) as reader:
        store = SnapshotStore.open(root, 1 << 40, identity="bench")
        cache = TieredCache(
            model.state.layout(),
            4 << 30,
            identity="bench",
            store=store,
            codec=TensorCodec(model.state),
            writer=writer,
            reader=reader,
            write_behind=not store.entries,
        )
        yield RuntimeLoop(model, cache)
        store.close()


@contextmanager
def snapshot_loop(model: Model) -> Iterator[RuntimeLoop]:
    """A loop on an empty directory of its own, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="zllm-bench-") as directory, _loop(model, Path(directory)) as loop:
        yield loop
