"""The resident tier: what is reused, exact to the token, and what a state that cannot be cut gives."""

from __future__ import annotations

import pytest

from tests.cache.plain_session import BLOCK, LINEAR, RINGS, Session, array, make_cache, run
from zllm_ref.cache import PrefixCache, StateLayout, tagged_fields


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
