"""Guesses from the sequence itself: right where it repeats, silent where it does not."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.runtime.draft.prompt_lookup import FIRST_LENGTH, MATCH, MOST_LENGTH, PromptLookup

NO_ROWS = torch.zeros(0, 1)


def plain_proposal(ids: list[int], limit: int) -> list[int]:
    """The newest earlier place of the last ids, by looking everywhere."""
    for end in range(len(ids) - 1, MATCH - 1, -1):
        if ids[end - MATCH : end] == ids[-MATCH:]:
            return ids[end : end + min(limit, FIRST_LENGTH)]
    return []


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), max_size=20), st.integers(0, 8))
def test_a_guess_is_what_followed_the_newest_earlier_place(before: list[int], after: list[int], limit: int) -> None:
    lookup = PromptLookup(before)
    for position, token in enumerate(after, start=len(before)):
        lookup.follow(position - 1, NO_ROWS, [token])

    assert lookup.propose(limit) == plain_proposal(before + after, limit)


def test_rows_that_are_known_already_are_not_learnt_twice() -> None:
    lookup = PromptLookup([1, 2, 3, 4, 5])
    lookup.follow(0, NO_ROWS, [2, 3, 4, 5, 1, 2, 3])

    assert lookup.propose(2) == [4, 5]


def test_success_makes_guesses_longer_and_failure_makes_them_stop() -> None:
    line = list(range(40))
    lookup = PromptLookup(line + line[:5])
    assert len(lookup.propose(99)) == FIRST_LENGTH

    for _ in range(5):
        lookup.judge(4, 4)
    assert len(lookup.propose(99)) == MOST_LENGTH

    for _ in range(6):
        lookup.judge(4, 0)
    assert lookup.propose(99) == []
    lookup.follow(len(line) + 4, NO_ROWS, line[5:40])
    assert lookup.propose(99) != []
