"""`bench-draft`: two loops that take turns, and what becomes of a job that fails in one of them."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.stub_drafters import HashOracles
from tests.runtime.stub_model import PROMPT, HashModel, continuation, job, new_loop
from zllm_ref.commands.bench_draft import Side, _print_table


@torch.inference_mode()
def run_out(side: Side) -> None:
    side.begin()
    while not side.is_over:
        side.take_turn()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fails_at", [0, 2])
def test_a_job_that_fails_ends_the_measuring_instead_of_hanging_it(fails_at: int) -> None:
    model = HashModel()
    model.fails_when = lambda step: len(model.steps) > fails_at
    side = Side(new_loop(model))
    side.loop.submit(job(PROMPT, 20, listener=side))  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="could not be computed"):
        run_out(side)


@pytest.mark.timeout(300)
def test_a_side_counts_the_tokens_of_its_own_turns() -> None:
    side = Side(new_loop(drafters=HashOracles(length=3)))
    side.loop.submit(job(PROMPT, 21, listener=side))  # type: ignore[arg-type]

    run_out(side)

    assert side.ids == continuation(PROMPT, 21)
    assert side.num_decoded == 20  # the first one is the prompt's
    assert side.seconds > 0


def test_the_table_is_whole_on_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"answer_tokens": 1200, "plain_tokens_per_second": 38.12, "draft_tokens_per_second": 189.3, "ratio": 4.98}
    figures |= {"cpu_ratio": 4.87, "drafted": 881, "accepted": 828, "tokens_per_round": 5.96, "same_tokens": True}
    works = {name: {**figures, "ratios": [4.9, 5.01]} for name in ("a file again", "random text")}
    facts = {"model": "a model", "dtype": "bfloat16", "threads": 1, "device": "cpu", "drafter": "prompt_lookup"}

    _print_table({**facts, "works": works})

    printed = capsys.readouterr().out
    for expected in ("a file again", "drafts tokens/s", "1,200", "189.3", "4.90 … 5.01", "5.96", "yes"):
        assert expected in printed
    assert "…" not in printed.replace(" … ", "")
