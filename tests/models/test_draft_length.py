"""The number of guesses follows from chances and costs alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.runtime.draft.length import AcceptanceRecord, StepCost, best_length


def cost_of(**seconds: float) -> StepCost:
    cost = StepCost()
    for rows, value in seconds.items():
        cost.observe(int(rows.removeprefix("rows")), value)
    return cost


@given(st.lists(st.floats(0.0, 1.0), max_size=8), st.lists(st.floats(0.01, 10.0), min_size=9, max_size=9))
def test_no_other_length_gives_more_tokens_per_second(chances: list[float], seconds: list[float]) -> None:
    cost = StepCost()
    seconds = sorted(seconds)
    for rows, value in enumerate(seconds, start=1):
        cost.observe(rows, value)
    survivals, product = [], 1.0
    for chance in chances:
        product *= chance
        survivals.append(product)

    chosen = best_length(survivals, cost)

    rates = [(1 + sum(survivals[:length])) / seconds[length] for length in range(len(survivals) + 1)]
    assert rates[chosen] == pytest.approx(max(rates))


def test_where_rows_cost_nothing_more_every_likely_guess_is_taken() -> None:
    assert best_length([0.9, 0.5, 0.1], cost_of(rows1=1.0, rows4=1.0)) == 3


def test_where_rows_cost_as_much_as_rounds_none_is() -> None:
    assert best_length([0.9, 0.5, 0.1], cost_of(rows1=1.0, rows2=2.0, rows3=3.0, rows4=4.0)) == 0


def test_costs_between_measurements_lie_on_a_line() -> None:
    assert cost_of(rows2=1.0, rows6=3.0).seconds(4) == pytest.approx(2.0)
    assert cost_of(rows2=1.0, rows6=3.0).seconds(1) == 1.0
    assert cost_of(rows2=1.0, rows6=3.0).seconds(12) == pytest.approx(3.75)  # unmeasured: twice the rows, a quarter more
    assert StepCost().seconds(5) == 1.0


def test_one_disturbed_round_is_no_cost_and_more_rows_never_cost_less() -> None:
    cost = cost_of(rows1=1.0, rows4=1.2, rows8=1.5)
    for seconds in (1.0, 9.0, 1.1):
        cost.observe(1, seconds)
    assert cost.seconds(1) == pytest.approx(1.05)

    for _ in range(5):
        cost.observe(4, 7.0)  # more than eight rows cost: a busy machine
    assert cost.seconds(4) == 1.5


def test_survival_falls_where_guesses_fail_and_places_behind_a_failure_are_not_blamed() -> None:
    record = AcceptanceRecord(3)
    before = record.survivals()

    for _ in range(50):
        record.judge(3, 1)

    first, second, third = record.survivals()
    assert first > 0.9
    assert second < 0.1
    assert third / second == pytest.approx(before[2] / before[1])


def test_what_a_guess_costs_to_make_counts_too() -> None:
    cost = cost_of(rows1=1.0, rows4=1.0)
    assert best_length([0.9, 0.5, 0.1], cost, guess_seconds=0.3) == 2
    assert best_length([0.9, 0.5, 0.1], cost, guess_seconds=2.0) == 0
