"""What the resident tier keeps: nothing half, each state once, old rounds given up."""

from __future__ import annotations

import gc
import sys
from collections import Counter

import numpy as np
import pytest

from tests.cache.plain_session import RINGS, Session, array, make_cache, run
from zllm_ref.cache import PrefixCache, StateLayout


def test_nothing_is_published_when_the_request_is_cancelled_before_its_commit(cache: PrefixCache) -> None:
    admission = cache.admit("", array(list(range(20))), reserve_bytes=200)
    assert admission is not None
    assert cache.lookup("", array(list(range(20)))) is None
    cache.release(admission)

    assert cache.lookup("", array(list(range(20)))) is None
    assert cache.resident_bytes == 0


@pytest.mark.parametrize("fails_at", [0, 8, 15, 19])
def test_nothing_is_published_when_the_copy_fails_halfway(cache: PrefixCache, fails_at: int) -> None:
    admission = cache.admit("", array(list(range(20))), reserve_bytes=200)
    assert admission is not None

    with pytest.raises(OSError, match="went away"):
        cache.commit(admission, array(list(range(20))), Session(list(range(20)), fails_at=fails_at))

    cache.check()
    assert cache.lookup("", array(list(range(20)))) is None
    cache.release(admission)
    assert cache.resident_bytes == 0


def test_release_twice_is_release_once(cache: PrefixCache) -> None:
    run(cache, list(range(20)))
    admission = cache.admit("", array(list(range(20))), reserve_bytes=200)
    assert admission is not None

    cache.release(admission)
    free = cache.free_bytes
    cache.release(admission)

    assert cache.free_bytes == free
    with pytest.raises(ValueError, match="released"):
        cache.commit(admission, array([1]), Session([1]))


def test_two_requests_that_end_in_the_same_state_keep_it_once_under_the_younger_name(cache: PrefixCache) -> None:
    both = [cache.admit("", array(list(range(20))), reserve_bytes=200) for _ in range(2)]
    sessions = [Session(list(range(20))) for _ in both]

    for admission, session in zip(both, sessions, strict=True):
        assert admission is not None
        terminal = cache.commit(admission, array(list(range(20))), session)
        assert terminal is not None
        assert terminal.cache_id == admission.cache_id
    cache.check()
    for admission in both:
        assert admission is not None
        cache.release(admission)

    assert sessions[1].copied == []
    assert cache.resident_bytes == 200
    hit = cache.lookup("", array(list(range(21))))
    assert hit is not None
    assert both[1] is not None
    assert hit.cache_id == both[1].cache_id


@pytest.mark.parametrize("prefix_rounds", [0, 1, 2])
def test_only_so_many_ancestor_rounds_keep_their_names(prefix_rounds: int) -> None:
    cache = make_cache(RINGS, prefix_rounds=prefix_rounds)
    lengths = [5, 11, 17, 23, 29]
    for length in lengths:
        run(cache, list(range(length)))

    kept = [terminal["length"] for terminal in cache.snapshot()["terminals"]]

    assert kept == lengths[len(lengths) - 1 - prefix_rounds :]


def test_a_unit_counts_for_its_round_and_goes_with_it() -> None:
    cache = make_cache(RINGS, prefix_rounds=1)
    for number in range(4):
        prompt, whole = list(range(10 * number + 7)), list(range(10 * number + 10))
        admission = cache.admit("", array(prompt), reserve_bytes=len(whole) * 10 + 70)
        assert admission is not None
        cache.commit_unit(admission, array(prompt[:-1]), Session(prompt[:-1], has_fixed=True))
        cache.commit(admission, array(whole), Session(whole, has_fixed=True))
        cache.release(admission)
        cache.check()

    kept = [(terminal["length"], terminal["round"]) for terminal in cache.snapshot()["terminals"]]

    assert sorted(kept) == [(26, 2), (30, 2), (36, 3), (40, 3)]


def test_a_unit_where_a_request_ended_leaves_it_its_name_and_an_end_where_a_unit_was_takes_it_over() -> None:
    cache = make_cache(RINGS)
    _, ended = run(cache, list(range(12)))
    admission = cache.admit("", array(list(range(20))), reserve_bytes=1000)
    assert admission is not None
    assert ended is not None
    same = cache.commit_unit(admission, array(list(range(12))), Session(list(range(12)), has_fixed=True))
    unit = cache.commit_unit(admission, array(list(range(15))), Session(list(range(15)), has_fixed=True))
    end = cache.commit(admission, array(list(range(15))), Session(list(range(15)), has_fixed=True))
    cache.release(admission)
    cache.check()

    assert same is not None
    assert unit is not None
    assert end is not None
    assert same.cache_id == ended.cache_id
    assert (unit.is_unit, end.is_unit, end.cache_id) == (True, False, admission.cache_id)
    assert cache.lookup("", array(list(range(16))), cache_id=end.cache_id) is not None


def test_an_ancestor_where_another_conversation_forks_stays() -> None:
    cache = make_cache(RINGS, prefix_rounds=0)
    run(cache, list(range(10)))
    side = cache.admit("", array([*range(10), 50]), reserve_bytes=300)
    assert side is not None
    run(cache, list(range(20)))
    ids = [*range(10), 50, 51]
    cache.commit(side, array(ids), Session(ids, has_fixed=True))
    cache.release(side)
    run(cache, list(range(30)))
    cache.check()

    lengths = sorted(terminal["length"] for terminal in cache.snapshot()["terminals"])

    assert lengths == [10, 12, 30]


def test_rows_in_use_stay_although_the_name_that_brought_them_is_evicted() -> None:
    cache = make_cache(capacity_bytes=1000)
    run(cache, list(range(40)))
    reader = cache.admit("", array([*range(8), 99]), reserve_bytes=90)
    assert reader is not None
    assert reader.hit is not None
    filler = cache.admit("", array([7]), reserve_bytes=820)
    assert filler is not None
    cache.check()

    hit = cache.lookup("", array(list(range(40))))

    assert hit is not None
    assert (hit.length, hit.cache_id) == (8, None)
    cache.release(filler)
    cache.release(reader)
    cache.check()
    assert cache.resident_bytes == 0


def test_ids_must_be_one_row_of_int32(cache: PrefixCache) -> None:
    for bad in ([[1, 2]], [1.5], [2**31]):
        with pytest.raises(ValueError, match="token ids"):
            cache.lookup("", np.array(bad))


def test_a_lookup_of_a_hundred_thousand_tokens_walks_the_graph_once() -> None:
    """Ten times the tokens take ten times the steps, counted in calls: seconds would say what else the machine does."""
    short, long = calls_of_lookup(10_000), calls_of_lookup(100_000)

    assert long < 11 * short, "it became quadratic"


def calls_of_lookup(num_tokens: int) -> int:
    """How many functions, Python's and C's, are called while a prompt of so many tokens is found again."""
    cache = PrefixCache(StateLayout(128, 1, 0, True), 10_000_000, identity="model")
    ids = np.random.default_rng(0).integers(0, 50_000, num_tokens).astype(np.int32)
    admission = cache.admit("", ids, reserve_bytes=len(ids))
    assert admission is not None
    cache.commit(admission, ids, Source())
    cache.release(admission)
    calls = Counter[str]()

    gc.collect()
    gc.disable()  # what a collection calls is of others
    sys.setprofile(lambda frame, event, argument: calls.update((event,)))
    try:
        hit = cache.lookup("", ids)
    finally:
        sys.setprofile(None)
        gc.enable()

    assert hit is not None
    assert hit.length == num_tokens - 1
    assert len(hit.blocks) == -(-num_tokens // 128)
    return calls["call"] + calls["c_call"]


class Source:
    def copy_rows(self, start: int, end: int) -> object:
        return (start, end)

    def copy_fixed(self) -> object | None:
        return None
