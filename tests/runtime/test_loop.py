"""The loop: jobs in, tokens out, alone, together, in chunks and as forks, up to every kind of end."""

from __future__ import annotations

import numpy as np

from tests.runtime.stub_model import PROMPT, VOCAB, HashModel, Heard, assert_idle, continuation, job, new_loop, run
from zllm_ref.runtime.sampler import SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason

# answers


def test_a_job_says_what_the_model_says_alone() -> None:
    loop = new_loop()

    heard = run(loop, max_new_tokens=12)

    assert heard.ids() == continuation(PROMPT, 12)
    assert heard.ended == {0: (EndReason.MAX_TOKENS, None)}
    assert heard.closed
    assert_idle(loop)


def test_a_long_prompt_goes_in_chunks_and_says_the_same() -> None:
    prompt = np.random.default_rng(1).integers(0, VOCAB, 700).tolist()
    model = HashModel()

    heard = run(new_loop(model), prompt)

    assert heard.ids() == continuation(prompt, 5)
    assert len([rows for rows in model.steps if rows[0] > 1]) > 1


def test_jobs_decode_together_and_each_says_what_it_says_alone() -> None:
    model = HashModel()
    loop = new_loop(model)
    heard = [Heard() for _ in range(4)]
    prompts = [[n, 2 * n, 7] for n in range(4)]

    for listener, prompt in zip(heard, prompts, strict=True):
        loop.submit(job(prompt, 6, listener=listener))
    loop.run_until_idle()

    assert [listener.ids() for listener in heard] == [continuation(prompt, 6) for prompt in prompts]
    assert (1, 1, 1, 1) in model.steps
    assert_idle(loop)


def test_further_choices_fork_the_prompt_instead_of_computing_it_again() -> None:
    model = HashModel()
    heard = Heard()
    plans = tuple(ChoicePlan(SamplingParameters(logit_bias=((choice, 100.0),) if choice else ())) for choice in range(3))

    loop = new_loop(model)
    loop.submit(job(PROMPT, 4, listener=heard, plans=plans))
    loop.run_until_idle()

    assert heard.ids(0) == continuation(PROMPT, 4)
    assert heard.ids(1) == [1] * 4
    assert heard.ids(2) == [2] * 4
    assert model.steps == [(5,), (1, 1, 1), (1, 1, 1), (1, 1, 1)]
    assert sorted(heard.ended) == [0, 1, 2]
    assert_idle(loop)


def test_the_first_choices_end_state_is_the_one_that_is_kept() -> None:
    loop = new_loop()
    plans = tuple(ChoicePlan(SamplingParameters(logit_bias=((9, 100.0),) if choice else ())) for choice in range(2))
    loop.submit(job(PROMPT, 4, plans=plans))
    loop.run_until_idle()

    after_the_first = run(loop, [*PROMPT, *continuation(PROMPT, 3), 8])
    after_the_second = run(loop, [*PROMPT, 9, 9, 9, 8])

    assert after_the_first.report is not None
    assert after_the_second.report is not None
    assert after_the_first.report.cached_tokens == len(PROMPT) + 3
    assert after_the_second.report.cached_tokens == len(PROMPT)


# ends


def test_a_stop_id_ends_the_choice_and_is_told() -> None:
    said = continuation(PROMPT, 10)
    stop = said[4]

    heard = run(new_loop(), max_new_tokens=10, stop_ids=[stop])

    assert heard.ids() == said[: said.index(stop) + 1]
    assert heard.ended == {0: (EndReason.STOP_TOKEN, stop)}


def test_a_stop_id_as_the_very_first_token_ends_the_choice() -> None:
    heard = run(new_loop(), stop_ids=[continuation(PROMPT, 1)[0]])

    assert len(heard.ids()) == 1
    assert heard.reason is EndReason.STOP_TOKEN


def test_a_listener_that_has_read_enough_stops_its_choice() -> None:
    loop = new_loop()
    heard = Heard(stop_at=3)
    loop.submit(job(PROMPT, 10, listener=heard))
    loop.run_until_idle()

    assert heard.ids() == continuation(PROMPT, 3)
    assert heard.reason is EndReason.STOPPED
    assert_idle(loop)


def test_one_token_is_a_whole_answer() -> None:
    model = HashModel()

    heard = run(new_loop(model), max_new_tokens=1)

    assert heard.ids() == continuation(PROMPT, 1)
    assert heard.reason is EndReason.MAX_TOKENS
    assert len(model.steps) == 1  # its row is never needed


def test_an_answer_that_fills_the_context_says_so() -> None:
    model = HashModel(context_length=len(PROMPT) + 4)

    assert run(new_loop(model), max_new_tokens=4).reason is EndReason.CONTEXT_FULL
    assert run(new_loop(model), max_new_tokens=3).reason is EndReason.MAX_TOKENS


def test_a_stop_id_in_the_last_place_is_a_stop_not_a_limit() -> None:
    heard = run(new_loop(), max_new_tokens=3, stop_ids=[continuation(PROMPT, 3)[2]])

    assert heard.reason is EndReason.STOP_TOKEN
