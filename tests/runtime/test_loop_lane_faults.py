"""What breaks in one lane of a round (its fence, its sampler) ends that lane's job, with its own words, and nobody else's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.stub_drafters import HashOracles
from tests.runtime.stub_model import PROMPT, Heard, assert_idle, continuation, job, new_loop
from zllm_ref.runtime.ports import TokenFence
from zllm_ref.runtime.rounds import NOT_CHOSEN
from zllm_ref.runtime.sampler import Sampler, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan

OTHERS = ([1, 2], [9, 9, 9])
DRAFTERS = pytest.mark.parametrize("drafters", [None, lambda: HashOracles(length=3)], ids=["plain", "drafts"])


@dataclass
class BreakingFence:
    """Allows everything, until it raises at the named call, when so many tokens have entered."""

    place: str
    after: int
    advanced: list[int] = field(default_factory=list)

    def allowed(self) -> NDArray[np.int32] | None:
        self._may_raise("allowed")
        return None

    def forced(self) -> Sequence[int]:
        self._may_raise("forced")
        return ()

    def advance(self, token_id: int) -> None:
        self._may_raise("advance")
        self.advanced.append(token_id)

    def clone(self) -> TokenFence:
        self._may_raise("clone")
        return BreakingFence(self.place, self.after, list(self.advanced))

    def rollback(self, num_tokens: int) -> None:
        del self.advanced[len(self.advanced) - num_tokens :]

    def explain(self) -> str:
        return "breaking"

    def _may_raise(self, place: str) -> None:
        if place == self.place and len(self.advanced) >= self.after:
            raise ValueError(f"planted fault of a fence in {place}")


def run_beside_others(plans: tuple[ChoicePlan, ...], drafters: Callable[[], HashOracles] | None) -> Heard:
    """→ what the job with these plans hears. Two others run with it, and hear what they would have heard alone."""
    loop = new_loop(drafters=drafters() if drafters else None)
    bad, others = Heard(), [Heard() for _ in OTHERS]
    loop.submit(job(OTHERS[0], 12, listener=others[0]))
    loop.submit(job(PROMPT, 12, listener=bad, plans=plans))
    loop.submit(job(OTHERS[1], 12, listener=others[1]))
    loop.run_until_idle()

    for prompt, heard in zip(OTHERS, others, strict=True):
        assert (heard.ids(), heard.closed, heard.failed) == (continuation(prompt, 12), True, [])
    assert loop.cache.lookup("", np.array([*PROMPT, *continuation(PROMPT, 1), 1], dtype=np.int32)) is None
    assert_idle(loop)
    return bad


@DRAFTERS
@pytest.mark.parametrize("place", ["allowed", "forced", "advance"])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_fence_that_raises_fails_its_own_request_alone(
    place: str, after: int, drafters: Callable[[], HashOracles] | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        bad = run_beside_others((ChoicePlan(SamplingParameters(), BreakingFence(place, after)),), drafters)

    assert (bad.failed, bad.closed) == ([NOT_CHOSEN], False)
    assert bad.ids() == continuation(PROMPT, 12)[: len(bad.ids())]
    assert f"planted fault of a fence in {place}" in caplog.text


def test_a_fence_that_cannot_look_at_guesses_fails_its_own_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    plans = (ChoicePlan(SamplingParameters(), BreakingFence("clone", 2)),)

    bad = run_beside_others(plans, lambda: HashOracles(length=3))

    assert (bad.failed, bad.closed) == ([NOT_CHOSEN], False)
    assert "planted fault of a fence in clone" in caplog.text


@DRAFTERS
def test_a_sampler_that_raises_fails_its_own_request_alone(
    drafters: Callable[[], HashOracles] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, accepted = Sampler.accept, list[int]()

    def accept(self: Sampler, token_id: int) -> None:
        accepted.append(self.parameters.seed)
        if self.parameters.seed == 13 and accepted.count(13) == 3:
            raise ArithmeticError("planted fault of a sampler")
        honest(self, token_id)

    monkeypatch.setattr(Sampler, "accept", accept)
    bad = run_beside_others((ChoicePlan(SamplingParameters(seed=13)),), drafters)

    assert (bad.failed, bad.closed) == ([NOT_CHOSEN], False)
    assert accepted.count(13) == 3


@DRAFTERS
def test_a_request_of_which_one_choice_breaks_fails_once(drafters: Callable[[], HashOracles] | None) -> None:
    plans = (ChoicePlan(SamplingParameters()), ChoicePlan(SamplingParameters(), BreakingFence("advance", 4)))

    bad = run_beside_others(plans, drafters)

    assert (bad.failed, bad.closed) == ([NOT_CHOSEN], False)
