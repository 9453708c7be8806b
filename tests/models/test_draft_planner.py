"""The planner: over all lanes together no other choice gives more tokens per second, and what does not pay is left alone."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.runtime.draft.length import survivals
from zllm_ref.runtime.draft.planner import FIRST_REST, LONGEST_REST, DraftPlanner, Proposal

chance = st.floats(0.0, 1.0)
lanes_of_chances = st.lists(st.lists(chance, max_size=4), min_size=1, max_size=3)


def planner(seconds: list[float], *, guesses_at_once: bool = True, most_length: int = 8) -> DraftPlanner:
    made = DraftPlanner(most_length, guesses_at_once)
    for rows, value in enumerate(seconds, start=1):
        made.cost.observe(rows, value)
    return made


@given(lanes_of_chances, st.lists(st.floats(0.01, 10.0), min_size=15, max_size=15))
def test_no_other_lengths_give_more_tokens_per_second(lanes: list[list[float]], seconds: list[float]) -> None:
    plan = planner(sorted(seconds))

    chosen = plan.cut([Proposal(1, chances) for chances in lanes])

    def rate(lengths: tuple[int, ...]) -> float:
        tokens = len(lanes) + sum(sum(survivals(chances)[:length]) for chances, length in zip(lanes, lengths, strict=True))
        return tokens / plan.cost.seconds(len(lanes) + sum(lengths))

    best = max(rate(lengths) for lengths in product(*(range(len(chances) + 1) for chances in lanes)))
    assert rate(tuple(chosen)) == pytest.approx(best)


def test_the_likelier_lane_gets_the_rows() -> None:
    plan = planner([1.0, 1.0, 1.0, 1.0, 9.0])

    assert plan.cut([Proposal(1, [0.3, 0.3]), Proposal(1, [0.9, 0.9])]) == [0, 2]


def test_where_a_rejection_costs_a_second_pass_only_likely_guesses_are_verified() -> None:
    plan = planner([1.0] * 8)

    assert plan.cut([Proposal(1, [0.6, 0.2])]) == [2]
    assert plan.cut([Proposal(1, [0.6, 0.2], is_cuttable=False)]) == [1]
    assert plan.cut([Proposal(1, [0.4, 0.4], is_cuttable=False)]) == [0]
    assert plan.cut([Proposal(1, [0.97, 0.97], is_cuttable=False)]) == [2]


def test_all_at_once_drafters_are_asked_for_all_and_others_for_what_pays() -> None:
    dear = [1.0, 1.1, 3.0, 4.0, 5.0]
    block, single = planner(dear), planner(dear, guesses_at_once=False)

    assert block.ask(block.new_outlook(), 99, 1) == 8
    assert block.ask(block.new_outlook(), 3, 1) == 3
    assert single.ask(single.new_outlook(), 99, 1) == 1


def test_a_drafter_that_is_never_right_is_probed_ever_more_seldom() -> None:
    plan = planner([1.0, 1.5, 2.0], guesses_at_once=False)
    outlook, probes = plan.new_outlook(), []

    for number in range(4000):
        wanted = plan.ask(outlook, 99, 1)
        (kept,) = plan.cut([Proposal(1, outlook.record.chances()[:wanted], outlook.is_probe)])
        if wanted:
            plan.judge(outlook, wanted, wanted, 0, kept)
            probes.append(number)

    later = [second - first for first, second in zip(probes[-4:], probes[-3:], strict=False)]
    assert len(probes) < 25
    assert later == [LONGEST_REST + 1] * 3
    assert FIRST_REST + 1 in [second - first for first, second in pairwise(probes)]


def test_a_probe_is_verified_though_it_is_not_expected_to_pay() -> None:
    plan = planner([1.0, 5.0])

    assert plan.cut([Proposal(1, [0.1], is_probe=True)]) == [1]
    assert plan.cut([Proposal(1, [0.1])]) == [0]


def test_a_drafter_that_begins_to_be_right_is_asked_again() -> None:
    plan = planner([1.0, 1.5, 1.6, 1.7], guesses_at_once=False)
    outlook = plan.new_outlook()
    for _ in range(30):
        outlook.record.judge(1, 0)

    asked = 0
    for _ in range(600):
        wanted = plan.ask(outlook, 99, 1)
        if wanted:
            plan.judge(outlook, wanted, wanted, wanted, wanted)
            asked += 1

    assert plan.ask(outlook, 99, 1) > 1
    assert asked > 20


def test_costly_proposals_that_are_all_cut_off_are_not_asked_for_at_every_round() -> None:
    free, costly = planner([1.0, 9.0]), planner([1.0, 9.0])
    free.observe_proposal(4, 0.001)
    costly.observe_proposal(4, 0.5)
    asked = []
    for plan in (free, costly):
        outlook, count = plan.new_outlook(), 0
        for _ in range(200):
            wanted = plan.ask(outlook, 4, 1)
            if wanted:
                count += 1
                (kept,) = plan.cut([Proposal(1, [0.1] * wanted, outlook.is_probe)])
                plan.judge(outlook, wanted, wanted, 0, kept)
        asked.append(count)

    assert asked[0] == 200
    assert asked[1] < 10


def verified_proposals(rights: list[int], guess_seconds: float) -> int:
    """How often a drafter of blocks is asked in 400 rounds that claims more than it holds: so many right, in turn."""
    plan = planner([1.0, 1.05, 1.1, 1.15, 1.2])
    plan.observe_proposal(4, guess_seconds)
    outlook, count = plan.new_outlook(), 0
    for _ in range(400):
        wanted = plan.ask(outlook, 4, 1)
        if wanted:
            (kept,) = plan.cut([Proposal(1, [0.8] * wanted)])
            assert kept == wanted == 4
            right = rights[count % len(rights)]
            plan.judge(outlook, wanted, right + 1, right, kept)
            count += 1
    return count


def test_costly_proposals_rest_where_they_lose_more_than_they_gain_whatever_they_claim() -> None:
    assert verified_proposals([0], 0.3) < 40
    assert verified_proposals([0, 0, 1], 0.3) < 100
    assert verified_proposals([0, 0, 3], 0.3) == 400
    assert verified_proposals([0, 1, 1], 0.3) == 400
    assert verified_proposals([0] * 12 + [4] * 30, 0.3) > 300, "what begins to pay is asked again"
