"""Guesses from the sequence itself: what followed the longest common past, with a chance that follows from its length."""

from __future__ import annotations

import random
import tracemalloc

import torch
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.runtime.draft.prompt_lookup import (
    BYTES_PER_TOKEN,
    LONGEST_PAST,
    MATCH,
    MOST_PLACES,
    PromptLookup,
)

NO_ROWS = torch.zeros(0, 1)


def common_past(ids: list[int], place: int) -> int:
    count = 0
    while count < min(LONGEST_PAST, place) and ids[place - 1 - count] == ids[len(ids) - 1 - count]:
        count += 1
    return count


def plain_proposal(ids: list[int], limit: int) -> list[int]:
    """The newest places behind the last ids, by looking everywhere; the longest past counts, the newest of equals."""
    places = [end for end in range(len(ids) - 1, MATCH - 1, -1) if ids[end - MATCH : end] == ids[-MATCH:]][:MOST_PLACES]
    if not places:
        return []
    best = max(places, key=lambda place: (common_past(ids, place), place))
    loop = ids[best:]
    return (loop * (limit // len(loop) + 1))[:limit]


@given(st.lists(st.integers(0, 2), max_size=80), st.lists(st.integers(0, 2), max_size=20), st.integers(0, 8))
def test_a_guess_is_what_followed_the_longest_common_past(before: list[int], after: list[int], limit: int) -> None:
    lookup = PromptLookup(before)
    for position, token in enumerate(after, start=len(before)):
        lookup.propose(3)
        lookup.follow(position - 1, NO_ROWS, [token])

    assert lookup.propose(limit) == plain_proposal(before + after, limit)
    assert len(lookup.chances()) == len(lookup.propose(limit))


def test_rows_that_are_known_already_are_not_learnt_twice() -> None:
    lookup = PromptLookup([1, 2, 3, 4, 5])
    lookup.follow(0, NO_ROWS, [2, 3, 4, 5, 1, 2, 3])

    assert lookup.propose(2) == [4, 5]


def test_a_loop_goes_round_beyond_the_newest_id() -> None:
    assert PromptLookup([9, 1, 2, 3, 1, 2, 3]).propose(8) == [1, 2, 3, 1, 2, 3, 1, 2]


def test_the_longer_the_common_past_the_better_the_chance() -> None:
    line = list(range(100, 140))
    short, long = PromptLookup([*line, 7, *line[:3]]), PromptLookup([*line, 7, *line[:20]])
    short.propose(4)
    long.propose(4)

    assert short.chances()[0] < 0.5 < long.chances()[0]
    assert list(short.chances()) == sorted(short.chances())  # each right guess makes the past longer


def test_what_came_changes_the_chance_though_nobody_verified_the_guess() -> None:
    line = [1, 2, 3, 4]
    right, wrong = PromptLookup([*line, 9, 1, 2, 3]), PromptLookup([*line, 9, 1, 2, 3])
    for lookup, came in ((right, 4), (wrong, 5)):
        lookup.propose(1)
        lookup.follow(7, NO_ROWS, [came, 1, 2, 3])
        lookup.propose(1)

    first = PromptLookup([*line, 9, 1, 2, 3])
    first.propose(1)
    assert wrong.chances()[0] < first.chances()[0] < right.chances()[0]


def test_the_table_takes_no_more_bytes_than_are_accounted() -> None:
    for length in (50, 700, 20_000):
        source = random.Random(length)
        tracemalloc.start()
        lookup = PromptLookup([source.randrange(300, 1 << 20) for _ in range(length)])
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()

        assert lookup.propose(1) == []
        assert used <= length * BYTES_PER_TOKEN + 4096


def test_too_short_a_past_is_no_past() -> None:
    assert PromptLookup([1, 2, 3]).propose(5) == []
    assert PromptLookup([]).propose(5) == []
