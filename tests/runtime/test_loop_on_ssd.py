"""The loop over both tiers: what comes back from disk says what a cold prompt says, and a bad file is a miss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runtime.stub_model import AtOnce, HashModel, Heard, Later, assert_idle, continuation, job, step
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime import ssd_restores
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.restore import TensorCodec

PROMPT = np.random.default_rng(5).integers(0, 50, 300).tolist()
TURN = [*PROMPT, *continuation(PROMPT, 4), 7]


def open_loop(
    root: Path,
    model: HashModel,
    reader: object = None,
    writer: object = None,
    clock: Callable[[], float] = lambda: 0.0,
    files: Files | None = None,
    **options: object,
) -> RuntimeLoop:
    """By default time stands still: nothing is too late before a test says so."""
    store = SnapshotStore.open(root, 1 << 30, identity="hash", files=files)
    cache = TieredCache(
        model.state.layout(),
        1 << 24,
        identity="hash",
        store=store,
        codec=TensorCodec(model.state),
        writer=writer or AtOnce(),  # type: ignore[arg-type]
        reader=reader or AtOnce(),  # type: ignore[arg-type]
        **options,  # type: ignore[arg-type]
    )
    # a restore of so few bytes is worth it whatever the speeds were measured to be
    cache.rates.is_restore_worth_it = lambda num_bytes, num_tokens: True  # type: ignore[method-assign]
    return RuntimeLoop(model, cache, clock=clock)


def run(loop: RuntimeLoop, prompt: list[int], max_new_tokens: int = 4) -> Heard:
    heard = Heard()
    loop.submit(job(prompt, max_new_tokens, listener=heard))
    loop.run_until_idle()
    return heard


def close(loop: RuntimeLoop) -> None:
    assert isinstance(loop.cache, TieredCache)
    assert_idle(loop)
    while loop.cache.pump() or loop.cache.is_writing:
        pass
    step(loop)
    assert loop._restores is not None
    assert not loop._restores._progress, "a job that ended is still remembered"
    loop.cache.store.close()


@pytest.fixture(params=[False, True], ids=["cuttable", "uncuttable"])
def has_ring(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def root(tmp_path: Path, has_ring: bool) -> Path:
    """A directory that has the state after PROMPT and its answer."""
    first = open_loop(tmp_path, HashModel(has_ring=has_ring))
    assert run(first, PROMPT).ids() == continuation(PROMPT, 4)
    close(first)
    return tmp_path


def test_a_state_from_an_earlier_process_spares_its_tokens_and_says_the_same(root: Path, has_ring: bool) -> None:
    model = HashModel(has_ring=has_ring)
    loop = open_loop(root, model)

    heard = run(loop, TURN)

    assert heard.report is not None
    assert (heard.report.cached_tokens, heard.report.cache_tier) == (303, "ssd")
    assert sum(rows[0] for rows in model.steps[:2] if rows[0] < 300) < 300
    assert heard.ids() == continuation(TURN, 4)
    close(loop)


def test_a_cut_file_is_a_miss_with_the_right_answer(root: Path, has_ring: bool) -> None:
    for chunk in root.rglob("*"):
        if chunk.is_file() and chunk.stat().st_size > 400 and "manifest" not in str(chunk):
            chunk.write_bytes(chunk.read_bytes()[:-100])
    loop = open_loop(root, HashModel(has_ring=has_ring))

    heard = run(loop, TURN)

    assert heard.report is not None
    assert (heard.report.cached_tokens, heard.report.cache_tier) == (0, None)
    assert heard.ids() == continuation(TURN, 4)
    close(loop)


def test_other_jobs_go_on_while_a_state_is_read(root: Path, has_ring: bool) -> None:
    reader = Later()
    loop = open_loop(root, HashModel(has_ring=has_ring), reader)
    slow, quick = Heard(), Heard()
    loop.submit(job(TURN, 4, listener=slow))
    loop.submit(job([1, 2], 4, listener=quick))
    with torch.inference_mode():
        deadline = time.monotonic() + 60
        while not quick.closed and time.monotonic() < deadline:
            loop.step()
    assert quick.ids() == continuation([1, 2], 4)
    assert slow.report is None

    reader.run_all()
    loop.run_until_idle()

    assert slow.report is not None
    assert slow.report.cached_tokens == 303
    assert slow.ids() == continuation(TURN, 4)
    close(loop)


def test_a_job_cancelled_while_its_state_is_read_gives_everything_back(root: Path, has_ring: bool) -> None:
    loop = open_loop(root, HashModel(has_ring=has_ring), reader := Later())
    heard = Heard()
    handle = loop.submit(job(TURN, 4, listener=heard))
    with torch.inference_mode():
        loop.step()
    assert reader.work

    handle.cancel()
    reader.run_all()
    loop.run_until_idle()

    assert heard == Heard()
    assert run(loop, [1, 2]).ids() == continuation([1, 2], 4)
    close(loop)


def test_a_model_that_fails_after_a_restore_leaves_the_books_right(root: Path, has_ring: bool) -> None:
    model = HashModel(has_ring=has_ring)
    loop = open_loop(root, model)
    model.fails_when = lambda step: True

    failed = run(loop, TURN)
    model.fails_when = lambda step: False

    assert failed.failed == ["the prompt could not be computed"]
    assert_idle(loop)
    assert run(loop, TURN).ids() == continuation(TURN, 4)
    close(loop)


def test_stopping_writes_what_only_memory_holds(tmp_path: Path) -> None:
    loop = open_loop(tmp_path, HashModel(), write_behind=False)
    heard = Heard()
    loop.start()
    loop.submit(job(PROMPT, 4, listener=heard))
    deadline = time.monotonic() + 60
    while not heard.closed and time.monotonic() < deadline:
        time.sleep(0.002)
    loop.stop()
    close(loop)

    after = open_loop(tmp_path, HashModel())

    report = run(after, TURN).report
    assert report is not None
    assert (report.cached_tokens, report.cache_tier) == (303, "ssd")
    close(after)


def test_a_buffer_goes_back_only_when_nothing_writes_into_it_and_nobody_waits_for_that(root: Path, has_ring: bool) -> None:
    loop = open_loop(root, HashModel(has_ring=has_ring), reader := Later())
    unwanted, other = Heard(), Heard()
    handle = loop.submit(job(TURN, 4, listener=unwanted))
    step(loop)
    memory = next(iter(handle.state.tensors.values()))  # type: ignore[union-attr]
    held = loop.cache.reserved_bytes
    before = memory.clone()

    handle.cancel()
    loop.submit(job([1, 2], 4, listener=other))
    step(loop, 8)

    assert other.ids() == continuation([1, 2], 4), "nobody waits for the disk"
    assert handle.state is None
    assert loop.cache.reserved_bytes == held, "the reader may still write"
    assert torch.equal(memory, before), "no other session writes into memory that the reader has"
    reader.run_all()
    step(loop)
    assert_idle(loop)
    close(loop)


def test_a_disk_that_does_not_answer_costs_time_and_nothing_else(
    root: Path, has_ring: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    loop = open_loop(root, HashModel(has_ring=has_ring), reader := Later(), clock=lambda: clock[0])
    heard = Heard()
    loop.submit(job(TURN, 4, listener=heard))
    step(loop, 3)
    assert heard.report is None

    clock[0] += ssd_restores.RESTORE_TIMEOUT_SECONDS + 1
    step(loop, 12)

    assert heard.ids() == continuation(TURN, 4)
    assert heard.report is not None
    assert (heard.report.cached_tokens, heard.report.cache_tier) == (0, None)
    assert "not read in time" in caplog.text
    assert loop.cache.reserved_bytes > 0, "the disk may still answer"
    reader.run_all()
    step(loop)
    close(loop)


def test_a_slow_disk_is_waited_for_as_long_as_something_comes(root: Path, has_ring: bool) -> None:
    clock = [0.0]
    loop = open_loop(root, HashModel(has_ring=has_ring), reader := Later(), clock=lambda: clock[0])
    heard = Heard()
    handle = loop.submit(job(TURN, 4, listener=heard))
    step(loop, 2)
    for _ in range(4):
        assert handle.restore is not None
        clock[0] += 0.7 * ssd_restores.RESTORE_TIMEOUT_SECONDS
        handle.restore.num_read += 1
        step(loop, 2)

    reader.run_all()
    loop.run_until_idle()

    assert heard.report is not None
    assert heard.report.cache_tier == "ssd"
    assert heard.ids() == continuation(TURN, 4)
    close(loop)


@pytest.mark.parametrize("has_ring", [False])
def test_where_others_decode_a_chunk_begins_only_when_every_stage_is_there(root: Path) -> None:
    """A chunk that waits for a stage would keep the others waiting too."""
    model = HashModel()
    loop = open_loop(root, model, reader := Later(), num_stages=3)
    stream, heard = Heard(), Heard()
    loop.submit(job([1, 2], 60, listener=stream))
    step(loop, 3)
    handle = loop.submit(job(TURN, 4, listener=heard))
    step(loop, 2)
    assert handle.restore is not None
    handle.restore._events[0].set()  # the first stage is there, the others are late

    said = len(stream.ids())
    step(loop, 6)

    assert len(stream.ids()) == said + 6
    assert heard.report is None
    reader.run_all()
    loop.run_until_idle()
    assert heard.ids() == continuation(TURN, 4)
    assert stream.ids() == continuation([1, 2], 60)
    close(loop)


@pytest.mark.parametrize("has_ring", [False])
def test_a_stage_that_stays_away_in_the_midst_of_a_chunk_is_computed_instead(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zllm_ref.runtime.ssd_restores.GATE_TIMEOUT_SECONDS", 0.01)
    loop = open_loop(root, HashModel(), reader := Later(), num_stages=3)
    heard = Heard()
    handle = loop.submit(job(TURN, 4, listener=heard))
    step(loop)
    assert handle.restore is not None
    handle.restore._events[0].set()
    handle.restore.num_stages = 1  # the only layer of this model belongs to the last stage
    handle.restore._events[0].clear()
    handle.restore.is_stage_done = lambda stage: stage == 0 and handle.state.gate is None  # type: ignore[method-assign, union-attr]

    step(loop, 8)

    assert heard.ids() == continuation(TURN, 4)
    assert heard.report is not None
    assert heard.report.cached_tokens == 0
    reader.run_all()
    step(loop)
    close(loop)


class SlowFiles(Files):
    """A disk that takes its time, and says when it has begun."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def sync(self, descriptor: int) -> None:
        self.has_begun.set()
        assert self.may_end.wait(300)


def test_no_round_waits_for_a_state_that_is_being_written(tmp_path: Path) -> None:
    """The disk stands still in the midst of a save, and streams go on, end, and begin."""
    files = SlowFiles()
    with ThreadPoolExecutor(1) as writer:
        loop = open_loop(tmp_path, HashModel(), writer=writer, files=files)
        stream, after = Heard(), Heard()
        handle = loop.submit(job([1, 2], 4000, listener=stream))
        loop.submit(job(PROMPT, 2, listener=Heard()))
        assert isinstance(loop.cache, TieredCache)
        while not loop.cache.is_writing:
            step(loop)
        assert files.has_begun.wait(60)
        said = len(stream.ids())

        loop.submit(job([3, 4], 5, listener=after))
        step(loop, 60)

        assert len(stream.ids()) > said + 50
        assert stream.ids() == continuation([1, 2], len(stream.ids()))
        assert after.ids() == continuation([3, 4], 5)
        assert loop.cache.is_writing
        assert loop.cache.ssd_counts.saves == 0
        handle.cancel()
        files.may_end.set()
        loop.run_until_idle()
        while loop.cache.pump() or loop.cache.is_writing:
            pass
        close(loop)
