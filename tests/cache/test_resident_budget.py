"""The resident tier within its budget: who is freed, who waits, who is refused."""

from __future__ import annotations

import pytest

from tests.cache.plain_session import LINEAR, RINGS, Session, array, make_cache, rows_of, run
from zllm_ref.cache import AdmissionImpossible, StateLayout


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
