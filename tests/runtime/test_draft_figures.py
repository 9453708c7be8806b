"""What a round counts for: guesses that were looked at, tokens gained, chances kept or not."""

from __future__ import annotations

import pytest

from zllm_ref.runtime.draft.figures import DraftFigures


def test_a_round_counts_right_guesses_and_the_models_own_token() -> None:
    figures = DraftFigures()

    figures.add(proposed=5, right=2, tokens=3)
    figures.add(proposed=5, right=0, tokens=1)
    figures.add(proposed=0, right=0, tokens=1)

    assert (figures.accepted_length, figures.right_per_round) == (5 / 3, 2 / 3)


def test_what_stands_behind_a_wrong_guess_was_not_tried() -> None:
    figures = DraftFigures()

    figures.add(proposed=5, right=2, tokens=3)
    figures.add(proposed=5, right=5, tokens=6)

    assert figures.tried_at == [2, 2, 2, 1, 1]
    assert figures.right_at == [2, 2, 1, 1, 1]


def test_a_guess_behind_the_end_of_an_answer_was_not_looked_at() -> None:
    figures = DraftFigures()

    figures.add(proposed=5, right=2, tokens=2, chances=[0.9] * 5)  # the second right guess was the last token

    assert figures.tried_at == [1, 1]
    assert figures.chances == [(0.9, True), (0.9, True)]


def test_chances_that_come_true_have_no_calibration_error() -> None:
    figures = DraftFigures()
    for number in range(100):
        figures.add(1, int(number < 75), 1 + int(number < 75), [0.75])

    (only,) = figures.bins()

    assert (only.low, only.high, only.tried, only.chance, only.right) == (0.7, 0.8, 100, 0.75, 0.75)
    assert figures.calibration_error == 0


def test_the_calibration_error_is_weighted_by_guesses() -> None:
    figures = DraftFigures()
    for _ in range(30):
        figures.add(1, 1, 2, [0.5])  # off by a half
    for _ in range(10):
        figures.add(1, 1, 2, [1.0])  # right

    assert figures.calibration_error == pytest.approx(0.75 * 0.5)
    assert [row.tried for row in figures.bins()] == [30, 10]
