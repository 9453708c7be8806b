"""`bench-draft`: two loops that take turns, and what becomes of a job that fails in one of them."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.stub_drafters import HashOracles
from tests.runtime.stub_model import PROMPT, HashModel, continuation, job, new_loop
from zllm_ref.commands.bench_draft import Side


@torch.inference_mode()
def run_out(side: Side) -> None:
    side.begin()
    while not side.is_over:
        side.take_turn()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("fails_at", [0, 2])
def test_a_job_that_fails_ends_the_measuring_instead_of_hanging_it(fails_at: int) -> None:
    model = HashModel()
    model.fails_when = lambda step: len(model.steps) > fails_at
    side = Side(new_loop(model))
    side.loop.submit(job(PROMPT, 20, listener=side))  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="could not be computed"):
        run_out(side)


@pytest.mark.timeout(20)
def test_a_side_counts_the_tokens_of_its_own_turns() -> None:
    side = Side(new_loop(drafters=HashOracles(length=3)))
    side.loop.submit(job(PROMPT, 21, listener=side))  # type: ignore[arg-type]

    run_out(side)

    assert side.ids == continuation(PROMPT, 21)
    assert side.num_decoded == 20  # the first one is the prompt's
    assert side.seconds > 0
