"""The loop with drafters when something breaks: a drafter costs its guesses, a listener its own job, nobody else anything."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tests.runtime.stub_drafters import Breaking, HashOracle, HashOracles, Others
from tests.runtime.stub_model import PROMPT, Heard, assert_idle, continuation, job, new_loop, run, step
from zllm_ref.runtime.sequence import RoundReport
from zllm_ref.runtime.state import SessionState


def test_a_drafter_that_breaks_is_left_out_and_the_answer_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        heard = run(new_loop(drafters=Others(kind=Breaking)), max_new_tokens=30)

    assert heard.ids() == continuation(PROMPT, 30)
    assert heard.closed
    assert "planted fault of a drafter" in caplog.text


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_a_drafter_that_cannot_begin_is_left_out_and_every_choice_is_answered(
    which: int, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    class Unmade(HashOracles):
        def begin(self, state: SessionState, ids: Sequence[int]) -> HashOracle:
            drafter = super().begin(state, ids)
            if len(self.made) > which:
                raise error("no memory for a drafter")
            return drafter

    loop = new_loop(drafters=Unmade())
    heard = Heard()
    loop.submit(job(PROMPT, 9, listener=heard, num_choices=2))
    loop.run_until_idle()

    assert (heard.ids(0), heard.ids(1), heard.failed) == (continuation(PROMPT, 9), continuation(PROMPT, 9), [])
    assert "no memory for a drafter" in caplog.text
    assert_idle(loop)


@pytest.mark.parametrize("drafters", [None, HashOracles(length=3)], ids=["plain", "drafts"])
def test_who_looks_on_and_raises_ends_no_answer(drafters: HashOracles | None, caplog: pytest.LogCaptureFixture) -> None:
    def raise_always(report: RoundReport) -> None:
        raise RuntimeError("planted fault of an onlooker")

    heard = run(new_loop(drafters=drafters), max_new_tokens=9, on_round=raise_always)

    assert heard.ids() == continuation(PROMPT, 9)
    assert heard.closed
    assert "planted fault of an onlooker" in caplog.text


@pytest.mark.parametrize("drafters", [None, HashOracles(length=3)], ids=["plain", "drafts"])
def test_a_listener_that_raised_is_told_nothing_more_of_its_other_choices(drafters: HashOracles | None) -> None:
    calls = []

    def raise_at_the_third() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("listener at the third call")

    heard = Heard(on_token=raise_at_the_third)
    loop = new_loop(drafters=drafters)
    loop.submit(job(PROMPT, 20, listener=heard, num_choices=2))
    loop.run_until_idle()

    assert len(calls) == 3
    assert heard.failed == ["the answer could not be passed on"]
    assert_idle(loop)


def test_a_listener_that_raises_inside_a_draft_fails_its_own_job_alone() -> None:
    loop = new_loop(drafters=HashOracles(length=6))
    calls = 0

    def raise_late() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise RuntimeError("listener at the fourth token")

    bad, good = Heard(on_token=raise_late), Heard()
    loop.submit(job(PROMPT, 20, listener=bad))
    loop.submit(job([9, 9], 20, listener=good))
    loop.run_until_idle()

    assert bad.failed == ["the answer could not be passed on"]
    assert good.ids() == continuation([9, 9], 20)
    assert good.closed
    assert_idle(loop)


def test_a_cancelled_job_is_gone_before_its_next_round() -> None:
    loop = new_loop(drafters=HashOracles(length=2))
    heard, other = Heard(), Heard()
    handle = loop.submit(job(PROMPT, 40, listener=heard))
    loop.submit(job([9, 9], 12, listener=other))
    step(loop, 5)
    said = len(heard.ids())
    handle.cancel()
    loop.run_until_idle()

    assert len(heard.ids()) == said
    assert not heard.closed
    assert handle.drafted == []
    assert other.ids() == continuation([9, 9], 12)
    assert_idle(loop)
