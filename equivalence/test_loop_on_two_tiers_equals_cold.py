"""The runtime loop with snapshots on SSD says the same tokens, with the same logprobs, as one that has no cache to use.

Real threads read and write; requests run together, come back in a new process's place (another loop on the same directory),
are cancelled, and meet damaged files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.restore import TensorCodec

from .conftest import SUBJECTS
from .subjects import SMOLLM2, prompt_ids, subject
from .test_long_lived_equals_fresh import Collector, job, serve


@pytest.fixture(params=[param for param in SUBJECTS if not str(param.id).startswith(SMOLLM2)])
def small_model(request: pytest.FixtureRequest, device: str) -> Model:
    return subject(*request.param, invariant=True, device=device)


@contextmanager
def loop_on(model: Model, root: Path, num_stages: int = 1, resident_bytes: int = 1 << 30) -> Iterator[RuntimeLoop]:
    """A loop with empty memory on a directory; afterwards everything is written and given back."""
    with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(1) as reader:
        cache = TieredCache(
            model.state.layout(),
            resident_bytes,
            identity="loop",
            store=SnapshotStore.open(root, 1 << 40, identity="loop"),
            codec=TensorCodec(model.state),
            writer=writer,
            reader=reader,
            num_stages=num_stages,
        )
        # a restore is worth it whatever disk and model were measured to do: it is what is looked at here
        cache.rates.is_restore_worth_it = lambda num_bytes, num_tokens: True  # type: ignore[method-assign]
        loop = RuntimeLoop(model, cache)
        yield loop
        loop._write_dirty_states()
        cache.check()
        assert cache.reserved_bytes == 0
        assert cache.pinned_bytes == 0
        cache.store.close()


def ask(loop: RuntimeLoop, *prompts: list[int]) -> list[Collector]:
    """All at once, each to its end."""
    collectors = [Collector() for _ in prompts]
    for prompt, collector in zip(prompts, collectors, strict=True):
        loop.submit(job(prompt, collector))
    loop.run_until_idle()
    loop.cache.check()
    assert [collector.failed for collector in collectors] == [None] * len(prompts)
    return collectors


def cold(model: Model, prompt: list[int]) -> Collector:
    collector = Collector()
    serve(model, [job(prompt, collector)])
    return collector


def assert_same(got: Collector, expected: Collector) -> None:
    assert got.ids == expected.ids
    assert got.logprobs == expected.logprobs


def tier_of(collector: Collector) -> tuple[str | None, int]:
    assert collector.report is not None
    return collector.report.cache_tier, collector.report.cached_tokens


@pytest.mark.parametrize("num_stages", [1, 3])
def test_a_conversation_that_comes_back_from_ssd_says_the_same(small_model: Model, tmp_path: Path, num_stages: int) -> None:
    first = prompt_ids(small_model, 300, seed=80)
    with loop_on(small_model, tmp_path) as loop:
        (answer,) = ask(loop, first)
    second = [*first, *answer.ids[:-1], *prompt_ids(small_model, 40, seed=81)]

    with loop_on(small_model, tmp_path, num_stages) as loop:
        got, other = ask(loop, second, prompt_ids(small_model, 90, seed=82))

    assert tier_of(got) == ("ssd", 300 + len(answer.ids) - 1)
    assert_same(got, cold(small_model, second))
    assert_same(other, cold(small_model, prompt_ids(small_model, 90, seed=82)))


def test_the_same_prompt_again_leaves_one_token_and_says_the_same(small_model: Model, tmp_path: Path) -> None:
    """The step after the restore has a single row: the path of a decode round."""
    prompt = prompt_ids(small_model, 300, seed=83)
    with loop_on(small_model, tmp_path) as loop:
        ask(loop, prompt)

    with loop_on(small_model, tmp_path, num_stages=3) as loop:
        (got,) = ask(loop, prompt)

    assert tier_of(got) == ("ssd", 299)
    assert_same(got, cold(small_model, prompt))


def test_a_damaged_snapshot_is_computed_anew_and_says_the_same(small_model: Model, tmp_path: Path) -> None:
    prompt = prompt_ids(small_model, 300, seed=84)
    with loop_on(small_model, tmp_path) as loop:
        ask(loop, prompt)
    for chunk in (tmp_path / "chunks").iterdir():
        data = bytearray(chunk.read_bytes())
        data[-1] ^= 1
        chunk.write_bytes(data)

    with loop_on(small_model, tmp_path, num_stages=3) as loop:
        (got,) = ask(loop, prompt)
        assert isinstance(loop.cache, TieredCache)
        assert loop.cache.ssd_counts.restores_refused == 1

    assert tier_of(got) == (None, 0)
    assert_same(got, cold(small_model, prompt))


def test_conversations_that_push_each_other_out_all_say_the_same(small_model: Model, tmp_path: Path) -> None:
    prompts = [prompt_ids(small_model, 200, seed=90 + number) for number in range(5)]
    room = 2 * small_model.state.session_bytes(256) + small_model.state.layout().rows_bytes(300)
    with loop_on(small_model, tmp_path, resident_bytes=room) as loop:
        for _ in range(2):
            for prompt in prompts:
                (got,) = ask(loop, prompt)
                assert_same(got, cold(small_model, prompt))
        assert isinstance(loop.cache, TieredCache)
        assert loop.cache.counts.evictions > 4
        assert loop.cache.ssd_counts.hits > 2


class WaitingFiles(Files):
    """A disk that answers when it is told to."""

    def __init__(self) -> None:
        self.may_read = threading.Event()

    def read_into(self, descriptor: int, offset: int, buffers: Sequence[memoryview]) -> None:
        assert self.may_read.wait(60)
        super().read_into(descriptor, offset, buffers)


def test_a_client_that_leaves_during_a_restore_takes_nothing_along(small_model: Model, tmp_path: Path) -> None:
    """Its session's memory is given up only when nothing writes into it any more."""
    prompt = prompt_ids(small_model, 300, seed=85)
    with loop_on(small_model, tmp_path) as loop:
        ask(loop, prompt)

    with loop_on(small_model, tmp_path) as loop:
        loop.cache.store.files = files = WaitingFiles()
        handle = loop.submit(job(prompt, Collector()))
        loop.step()
        restore = handle.restore
        assert restore is not None
        assert not restore.is_drained
        handle.cancel()
        loop.step()

        assert handle.state is None
        assert not restore.is_drained
        assert loop.cache.reserved_bytes > 0, "given up while the reader may write"
        files.may_read.set()
        loop.run_until_idle()
        assert restore.is_drained
        assert loop.cache.reserved_bytes == 0
        loop.cache.check()
        assert loop.cache.reserved_bytes == 0
        (got,) = ask(loop, prompt)

    assert tier_of(got) == ("ssd", 299)
    assert_same(got, cold(small_model, prompt))
