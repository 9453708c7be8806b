"""The resident tier: what is reused, what is kept, what is freed, and that the books are right after every step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np
import pytest

from zllm_ref.cache import Admission, AdmissionImpossible, Hit, PrefixCache, StateLayout, Terminal, tagged_fields

BLOCK = 8
LINEAR = StateLayout(block_tokens=BLOCK, bytes_per_token=10, fixed_bytes=0, cuttable=True)
RINGS = StateLayout(block_tokens=BLOCK, bytes_per_token=10, fixed_bytes=70, cuttable=False)


class Session:
    """A state whose row at position i is simply the tokens up to i: whatever a hit hands out can be checked by eye."""

    def __init__(self, ids: list[int], has_fixed: bool = False, fails_at: int | None = None) -> None:
        self.ids = ids
        self.has_fixed = has_fixed
        self.fails_at = fails_at
        self.copied: list[tuple[int, int]] = []

    def copy_rows(self, start: int, end: int) -> object:
        if self.fails_at is not None and end > self.fails_at:
            raise OSError("the device went away")
        self.copied.append((start, end))
        return [tuple(self.ids[: position + 1]) for position in range(start, end)]

    def copy_fixed(self) -> object | None:
        return ("fixed", tuple(self.ids)) if self.has_fixed else None


def make_cache(layout: StateLayout = LINEAR, capacity_bytes: int = 100_000, **options: object) -> PrefixCache:
    numbers = itertools.count()
    return PrefixCache(layout, capacity_bytes, identity="model", new_cache_id=lambda: f"cache_{next(numbers)}", **options)


def array(ids: list[int]) -> np.ndarray:
    return np.array(ids, dtype=np.int32)


def rows_of(hit: Hit | None) -> list[tuple[int, ...]]:
    """What the session buffer holds after the copies; also proves that the ranges are gapless and in order."""
    rows: list[tuple[int, ...]] = []
    if hit is not None:
        for use in hit.blocks:
            assert use.start == len(rows)
            rows.extend(use.payload[: use.num_rows])
        assert len(rows) == hit.length
    return rows


def run(
    cache: PrefixCache,
    prompt: list[int],
    answer: list[int] | None = None,
    namespace: str = "",
    cache_id: str | None = None,
) -> tuple[Admission, Terminal | None]:
    """One whole request that succeeds; its hit is checked row by row against the prompt."""
    ids = prompt + (answer or [])
    admission = cache.admit(namespace, array(prompt), reserve_bytes=len(ids) * 10 + cache.layout.fixed_bytes, cache_id=cache_id)
    assert admission is not None
    cache.check()
    length = admission.hit.length if admission.hit else 0
    assert rows_of(admission.hit) == [tuple(prompt[: position + 1]) for position in range(length)]
    assert length < len(prompt)
    terminal = cache.commit(admission, array(ids), Session(ids, has_fixed=cache.layout.fixed_bytes > 0))
    cache.check()
    cache.release(admission)
    cache.check()
    return admission, terminal


@pytest.fixture
def cache() -> Iterator[PrefixCache]:
    cache = make_cache()
    yield cache
    cache.check()
    assert cache.pinned_bytes == cache.reserved_bytes == 0, "idle, and something is still held"


@pytest.mark.parametrize("num_tokens", [1, 2, 7, 8, 9, 15, 16, 17, 20])
def test_the_same_prompt_twice_leaves_exactly_its_last_token_to_compute(cache: PrefixCache, num_tokens: int) -> None:
    prompt = list(range(100, 100 + num_tokens))

    first, _ = run(cache, prompt)
    second, _ = run(cache, prompt)

    assert first.hit is None
    assert (second.hit.length if second.hit else 0) == num_tokens - 1


def test_a_prompt_that_is_an_earlier_prompt_with_its_answer_is_reused_up_to_its_last_token(cache: PrefixCache) -> None:
    run(cache, list(range(20)), [50, 51, 52, 53])

    again, _ = run(cache, [*range(20), 50, 51, 52, 53], [60])

    assert again.hit is not None
    assert again.hit.length == 23


def test_a_prefix_that_ends_inside_a_saved_block_is_cut_there(cache: PrefixCache) -> None:
    run(cache, list(range(30)))

    forked, _ = run(cache, [*range(21), 900, 901, 902])

    assert forked.hit is not None
    assert forked.hit.length == 21
    assert forked.hit.blocks[-1].num_rows == 5


def test_branches_share_the_blocks_before_their_fork(cache: PrefixCache) -> None:
    _, trunk = run(cache, list(range(24)))
    _, branch = run(cache, [*range(24), 70, 71])
    _, other = run(cache, [*range(24), 80])

    assert trunk is not None
    assert branch is not None
    assert other is not None
    assert (trunk.written_bytes, branch.written_bytes, other.written_bytes) == (240, 20, 10)
    assert cache.resident_bytes == 270


def test_a_right_cache_id_is_taken_before_a_longer_prefix(cache: PrefixCache) -> None:
    _, short = run(cache, list(range(10)))
    run(cache, list(range(40)))
    assert short is not None

    by_id = cache.lookup("", array(list(range(40))), cache_id=short.cache_id)
    by_prefix = cache.lookup("", array(list(range(40))))

    assert by_id is not None
    assert by_prefix is not None
    assert (by_id.length, by_id.cache_id) == (10, short.cache_id)
    assert by_prefix.length == 39


@pytest.mark.parametrize("layout", [LINEAR, RINGS], ids=["linear", "rings"])
def test_a_wrong_unknown_or_foreign_cache_id_falls_back_to_the_longest_prefix(layout: StateLayout) -> None:
    cache = make_cache(layout)
    run(cache, list(range(20)))
    _, different = run(cache, [5, 5, 5, 5])
    _, foreign = run(cache, list(range(20)), namespace="other")
    assert different is not None
    assert foreign is not None

    for cache_id in (different.cache_id, foreign.cache_id, "cache_unknown", ""):
        hit = cache.lookup("", array(list(range(25))), cache_id=cache_id)
        assert hit is not None
        assert hit.length == 20
        assert cache.lookup("third", array(list(range(25))), cache_id=cache_id) is None


def test_a_namespace_sees_only_its_own_states(cache: PrefixCache) -> None:
    run(cache, list(range(20)), namespace="a")

    assert cache.lookup("b", array(list(range(20)))) is None
    assert cache.lookup("", array(list(range(20)))) is None
    assert cache.lookup("a", array(list(range(20)))) is not None


def test_fields_of_a_namespace_are_tagged_and_carry_their_length() -> None:
    fields = [
        {"organisation": "org_1", "salt": "2345"},
        {"organisation": "org_12345", "salt": ""},
        {"organisation": "org_12345"},
        {"adapter": "X"},
        {"salt": "X"},
        {"a": "ab", "b": "c"},
        {"a": "a", "b": "bc"},
        {"a": "1", "b": "1"},
        {"a": "1;1:b=1"},
        {"a": "1;1:b=1:1"},
        {},
    ]

    assert len({tagged_fields(one) for one in fields}) == len(fields)
    assert tagged_fields({"a": "1", "b": "2"}) == tagged_fields({"b": "2", "a": "1"})


def test_a_state_that_cannot_be_cut_is_reused_only_at_its_own_length() -> None:
    cache = make_cache(RINGS)
    run(cache, list(range(20)), [90, 91])

    same_prompt, _ = run(cache, list(range(20)), [90, 91])
    longer, _ = run(cache, [*range(20), 90, 91, 40])
    whole = cache.lookup("", array([*range(20), 90, 91]))

    assert same_prompt.hit is None, "it would have to be cut"
    assert whole is None, "the last token could not be left to compute"
    assert longer.hit is not None
    assert longer.hit.length == 22
    assert longer.hit.fixed == ("fixed", (*range(20), 90, 91))


def test_fixed_tensors_come_with_their_own_length_only() -> None:
    cache = make_cache(StateLayout(BLOCK, 10, 70, cuttable=True))
    run(cache, list(range(20)))

    whole = cache.lookup("", array([*range(20), 5]))
    cut = cache.lookup("", array([*range(19), 5]))

    assert whole is not None
    assert cut is not None
    assert (whole.length, whole.fixed) == (20, ("fixed", tuple(range(20))))
    assert (cut.length, cut.fixed) == (19, None)


def test_of_several_whole_states_the_longest_that_fits_the_prompt_is_taken() -> None:
    cache = make_cache(RINGS, prefix_rounds=10)
    for length in (3, 8, 11, 16, 19, 30):
        run(cache, list(range(length)))

    found = {n: hit.length for n in range(1, 34) if (hit := cache.lookup("", array(list(range(n)))))}

    assert found == {n: max(x for x in (3, 8, 11, 16, 19, 30) if x < n) for n in range(4, 34)}


def test_a_unit_on_the_way_makes_a_later_fork_there_a_hit() -> None:
    cache = make_cache(RINGS)
    admission = cache.admit("", array(list(range(20))), reserve_bytes=1000)
    assert admission is not None
    unit = cache.commit_unit(admission, array(list(range(12))), Session(list(range(12)), has_fixed=True))
    cache.commit(admission, array(list(range(25))), Session(list(range(25)), has_fixed=True))
    cache.release(admission)
    cache.check()

    forked = cache.lookup("", array([*range(12), 77, 78]))

    assert unit is not None
    assert unit.cache_id != admission.cache_id
    assert forked is not None
    assert forked.length == 12


def test_whole_states_only_makes_a_linear_state_behave_like_one_that_cannot_be_cut() -> None:
    cache = make_cache(LINEAR, whole_states_only=True)
    run(cache, list(range(20)))

    assert cache.lookup("", array(list(range(20)))) is None
    assert cache.lookup("", array([*range(19), 99, 98])) is None
    hit = cache.lookup("", array(list(range(21))))
    assert hit is not None
    assert hit.length == 20


def test_the_least_recently_used_state_is_the_first_victim() -> None:
    cache = make_cache(capacity_bytes=1000)
    for start in (0, 100, 200):
        run(cache, list(range(start, start + 16)))
    run(cache, [*range(16), 7])  # the oldest is used again

    run(cache, list(range(300, 340)))

    kept = [start for start in (0, 100, 200, 300) if cache.lookup("", array(list(range(start, start + 16))))]
    assert kept == [0, 300]


def test_a_state_counts_as_used_when_a_request_read_it_even_if_that_request_failed() -> None:
    cache = make_cache(capacity_bytes=1000)
    run(cache, list(range(16)))
    run(cache, list(range(100, 116)))
    reader = cache.admit("", array([*range(16), 7]), reserve_bytes=170)
    assert reader is not None
    cache.release(reader)

    run(cache, list(range(200, 235)))

    assert cache.lookup("", array(list(range(17)))) is not None
    assert cache.lookup("", array(list(range(100, 117)))) is None


@pytest.mark.parametrize("layout", [LINEAR, RINGS], ids=["linear", "rings"])
def test_a_state_that_a_running_request_reads_is_never_a_victim(layout: StateLayout) -> None:
    cache = make_cache(layout, capacity_bytes=1000)
    _, terminal = run(cache, list(range(16)))
    reader = cache.admit("", array(list(range(17))), reserve_bytes=170)
    assert reader is not None
    assert terminal is not None

    for start in range(100, 1000, 100):
        run(cache, list(range(start, start + 20)))

    assert rows_of(reader.hit) == [tuple(range(position + 1)) for position in range(16)]
    hit = cache.lookup("", array(list(range(17))))
    assert hit is not None
    assert (hit.length, hit.cache_id) == (16, terminal.cache_id)
    cache.release(reader)
    cache.check()


def test_what_fits_only_later_waits_and_what_never_fits_is_refused() -> None:
    cache = make_cache(capacity_bytes=1000)
    first = cache.admit("", array([1]), reserve_bytes=600)
    assert first is not None

    assert cache.admit("", array([2]), reserve_bytes=600) is None
    with pytest.raises(AdmissionImpossible, match="1001"):
        cache.admit("", array([3]), reserve_bytes=1001)
    cache.release(first)
    second = cache.admit("", array([2]), reserve_bytes=1000)

    assert second is not None
    assert not second.will_keep
    assert cache.commit(second, array([2]), Session([2])) is None
    cache.release(second)
    cache.check()


def test_what_will_be_kept_is_kept_however_full_it_gets() -> None:
    cache = make_cache(capacity_bytes=1000)
    keeper = cache.admit("", array(list(range(20))), reserve_bytes=300)
    assert keeper is not None
    assert keeper.will_keep
    rest = cache.admit("", array([5]), reserve_bytes=400)
    assert rest is not None
    assert not rest.will_keep

    assert cache.commit(keeper, array(list(range(30))), Session(list(range(30)))) is not None
    cache.check()
    cache.release(keeper)
    cache.release(rest)
    cache.check()


def test_a_hit_that_can_never_stand_beside_the_session_is_shortened_and_nobody_waits_forever() -> None:
    cache = make_cache(capacity_bytes=1000)
    run(cache, list(range(40)))

    admission = cache.admit("", array(list(range(60))), reserve_bytes=800)

    assert admission is not None
    assert admission.hit is not None
    assert admission.hit.length == 16
    assert len(rows_of(admission.hit)) == 16
    cache.release(admission)
    cache.check()


def test_two_requests_that_each_fit_alone_are_served_one_after_the_other() -> None:
    cache = make_cache(capacity_bytes=2000)
    run(cache, list(range(80)))
    run(cache, list(range(100, 180)))
    waiting = [(list(range(160)), 1600), ([*range(100, 180), *range(500, 540)], 1200)]

    served = 0
    for _ in range(10):
        admitted = [
            (ids, admission)
            for ids, reserve_bytes in list(waiting)
            if (admission := cache.admit("", array(ids), reserve_bytes=reserve_bytes)) is not None
        ]
        assert admitted or not waiting, "nobody runs and somebody waits"
        for ids, admission in admitted:
            cache.commit(admission, array(ids), Session(ids))
            cache.release(admission)
            waiting = [entry for entry in waiting if entry[0] != ids]
            served += 1
        cache.check()

    assert served == 2


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
    cache = PrefixCache(StateLayout(128, 1, 0, True), 10_000_000, identity="model")
    ids = np.random.default_rng(0).integers(0, 50_000, 100_000).astype(np.int32)
    admission = cache.admit("", ids, reserve_bytes=len(ids))
    assert admission is not None
    cache.commit(admission, ids, Source())
    cache.release(admission)

    started = time.perf_counter()
    hit = cache.lookup("", ids)
    seconds = time.perf_counter() - started

    assert hit is not None
    assert hit.length == 99_999
    assert len(hit.blocks) == 782
    assert seconds < 0.5, "a hundred times the usual: it became quadratic"


class Source:
    def copy_rows(self, start: int, end: int) -> object:
        return (start, end)

    def copy_fixed(self) -> object | None:
        return None
