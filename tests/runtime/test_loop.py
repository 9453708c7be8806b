"""The loop: jobs in, tokens out, and whatever goes wrong fails its own job and gives everything back."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest
import torch

from tests.runtime.stub_model import VOCAB, ForcingFence, HashModel, Heard, assert_idle, continuation, job, new_loop
from zllm_ref.cache.admission import AdmissionImpossible
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.sampler import SamplingParameters
from zllm_ref.runtime.schedule import schedule
from zllm_ref.runtime.sequence import ChoicePlan, EndReason
from zllm_ref.runtime.weights import seeded_checkpoint

PROMPT = [3, 1, 4, 1, 5]


def run(loop: RuntimeLoop, prompt: list[int] = PROMPT, max_new_tokens: int = 5, **options: object) -> Heard:
    """One job from beginning to end."""
    heard = Heard()
    loop.submit(job(prompt, max_new_tokens, listener=heard, **options))  # type: ignore[arg-type]
    loop.run_until_idle()
    return heard


def step(loop: RuntimeLoop, times: int = 1) -> None:
    with torch.inference_mode():
        for _ in range(times):
            loop.step()


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


# reuse


def test_the_same_prompt_again_computes_its_last_token_only() -> None:
    model = HashModel()
    loop = new_loop(model)
    prompt = list(range(20))
    first = run(loop, prompt)
    model.steps.clear()

    second = run(loop, prompt)

    assert second.report is not None
    assert second.report.cached_tokens == 19
    assert second.report.cache_tier == "resident"
    assert model.steps[0] == (1,)
    assert second.ids() == first.ids()


def test_the_next_turn_begins_where_the_answer_ended() -> None:
    loop = new_loop()
    answer = run(loop, PROMPT, 6).ids()

    second = run(loop, [*PROMPT, *answer, 7, 8])

    assert second.report is not None
    assert second.report.cached_tokens == len(PROMPT) + 5  # the last token was said, but never fed
    assert second.ids() == continuation([*PROMPT, *answer, 7, 8], 5)


def test_a_kept_state_has_the_promised_id_and_is_found_by_it() -> None:
    loop = new_loop()

    heard = run(loop)

    assert heard.report is not None
    assert heard.kept == heard.report.cache_id is not None
    again = run(loop, [*PROMPT, *heard.ids(), 1], cache_id=heard.kept)
    assert again.report is not None
    assert again.report.cached_tokens == len(PROMPT) + 4


def test_a_job_that_keeps_nothing_leaves_nothing() -> None:
    loop = new_loop()

    heard = run(loop, keep=False)

    assert heard.report is not None
    assert (heard.report.cache_id, heard.kept) == (None, None)
    assert loop.cache.resident_bytes == 0


def test_namespaces_do_not_see_each_other() -> None:
    loop = new_loop()
    run(loop, namespace="a")

    other, own = run(loop, namespace="b"), run(loop, namespace="a")

    assert other.report is not None
    assert own.report is not None
    assert (other.report.cached_tokens, own.report.cached_tokens) == (0, len(PROMPT) - 1)


def test_a_saved_state_that_cannot_be_read_is_a_miss_with_the_right_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = new_loop()
    run(loop)

    def broken(state: object, hit: object) -> None:
        state.length = 3  # type: ignore[attr-defined]
        raise RuntimeError("torn")

    monkeypatch.setattr("zllm_ref.runtime.loop.restore", broken)
    with caplog.at_level(logging.ERROR):
        heard = run(loop)

    assert heard.report is not None
    assert (heard.report.cached_tokens, heard.report.cache_tier) == (0, None)
    assert heard.ids() == continuation(PROMPT, 5)
    assert "computing the prompt instead" in caplog.text
    assert_idle(loop)


def test_a_state_that_cannot_be_kept_costs_this_request_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop()

    def full(*_: object) -> None:
        raise MemoryError("full")

    monkeypatch.setattr(loop.cache, "commit", full)
    heard = run(loop)

    assert heard.ids() == continuation(PROMPT, 5)
    assert heard.closed
    assert heard.kept is None
    assert_idle(loop)


# states that cannot be cut


def test_a_state_that_cannot_be_cut_is_kept_on_the_way_and_found_there() -> None:
    model = HashModel(has_ring=True)
    loop = new_loop(model)
    prompt = list(range(40))
    first = run(loop, prompt)
    assert model.steps[:2] == [(39,), (1,)]
    assert first.report is not None
    assert first.report.cached_tokens == 0
    model.steps.clear()

    second = run(loop, prompt)

    assert second.report is not None
    assert second.report.cached_tokens == 39
    assert model.steps[0] == (1,)
    assert second.ids() == first.ids() == continuation(prompt, 5)
    third = run(loop, [*prompt, *first.ids(), 2])
    assert third.report is not None
    assert third.report.cached_tokens == 44
    assert third.ids() == continuation([*prompt, *first.ids(), 2], 5)
    assert_idle(loop)


def test_where_two_prompts_part_the_third_one_finds_a_state() -> None:
    loop = new_loop(HashModel(has_ring=True))
    common = list(range(30))
    prompts = [[*common, end, end + 1, end + 2] for end in (31, 35, 40)]

    reports = [run(loop, prompt).report for prompt in prompts]

    assert [report.cached_tokens for report in reports if report is not None] == [0, 0, 30]


def test_a_unit_that_cannot_be_kept_costs_this_request_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop(HashModel(has_ring=True))

    def full(*_: object) -> None:
        raise MemoryError("full")

    monkeypatch.setattr(loop.cache, "commit_unit", full)
    heard = run(loop)

    assert heard.ids() == continuation(PROMPT, 5)
    assert not heard.failed
    assert_idle(loop)


# fences


def test_ids_that_the_fence_forces_are_fed_without_sampling_and_leave_the_right_rows() -> None:
    first = continuation(PROMPT, 1)[0]
    fence = ForcingFence(first, (40, 41, 42))
    model = HashModel()
    loop = new_loop(model)

    heard = run(loop, max_new_tokens=8, plans=(ChoicePlan(SamplingParameters(), fence),))

    forced = [first, 40, 41, 42]
    assert heard.ids() == [*forced, *continuation([*PROMPT, *forced], 4)]
    assert [token.forced for token in heard.tokens[0]] == [False, True, True, True, False, False, False, False]
    assert fence.advanced == heard.ids()
    assert model.steps[:3] == [(5,), (4,), (1,)]
    again = run(loop, [*PROMPT, *heard.ids(), 1])
    assert again.report is not None
    assert again.report.cached_tokens == len(PROMPT) + 7
    assert again.ids() == continuation([*PROMPT, *heard.ids(), 1], 5)


def test_forced_ids_stop_at_the_limit_of_the_job() -> None:
    first = continuation(PROMPT, 1)[0]

    heard = run(new_loop(), max_new_tokens=3, plans=(ChoicePlan(SamplingParameters(), ForcingFence(first, (40, 41, 42))),))

    assert heard.ids() == [first, 40, 41]
    assert heard.reason is EndReason.MAX_TOKENS


def test_a_fenced_lane_and_a_free_one_share_a_round() -> None:
    loop = new_loop()
    first = continuation(PROMPT, 1)[0]
    fenced, free = Heard(), Heard()
    loop.submit(job(PROMPT, 8, listener=fenced, plans=(ChoicePlan(SamplingParameters(), ForcingFence(first, (40, 41))),)))
    loop.submit(job([9, 9], 8, listener=free))
    loop.run_until_idle()

    assert free.ids() == continuation([9, 9], 8)
    assert fenced.ids() == [first, 40, 41, *continuation([*PROMPT, first, 40, 41], 5)]


def test_what_the_fence_forbids_never_comes() -> None:
    best = continuation(PROMPT, 1)[0]
    fence = ForcingFence(-1, (), frozenset({best}))

    heard = run(new_loop(), max_new_tokens=1, plans=(ChoicePlan(SamplingParameters(), fence),))

    assert heard.ids() == [0 if best else 1]


def test_a_fenced_round_gives_the_bits_of_the_plain_prompt_on_a_real_model() -> None:
    """Forced ids go in as a chunk beside other lanes: the tokens after them are those of a prompt that has them."""
    model = build_model(seeded_checkpoint("tiny-llama", torch.float32), Numerics(torch.float32, 1))

    def new() -> RuntimeLoop:
        return RuntimeLoop(model, PrefixCache(model.state.layout(), 1 << 26, identity="tiny"))

    plain = run(new(), [5, 6, 7], 1).ids()
    fence = ForcingFence(plain[0], (30, 31, 32))
    loop, fenced = new(), Heard()
    loop.submit(job([8, 9], 9))
    loop.submit(job([5, 6, 7], 9, listener=fenced, plans=(ChoicePlan(SamplingParameters(), fence),)))
    loop.run_until_idle()

    assert fenced.ids() == [plain[0], 30, 31, 32, *run(new(), [5, 6, 7, plain[0], 30, 31, 32], 5).ids()]


# cancelling


def test_a_job_cancelled_while_it_waits_never_begins() -> None:
    loop = new_loop(max_lanes=1)
    running, waiting = Heard(), Heard()
    loop.submit(job(PROMPT, listener=running))
    handle = loop.submit(job([9], listener=waiting))
    step(loop)

    handle.cancel()
    loop.run_until_idle()

    assert waiting == Heard()
    assert running.ids() == continuation(PROMPT, 5)
    assert_idle(loop)


def test_a_job_cancelled_in_its_prompt_gives_everything_back() -> None:
    model = HashModel()
    loop = new_loop(model)
    heard = Heard()
    handle = loop.submit(job(list(range(50)) * 20, listener=heard))
    step(loop)
    assert loop.cache.reserved_bytes > 0

    handle.cancel()
    handle.cancel()
    loop.run_until_idle()

    assert heard == Heard()
    assert len(model.steps) == 1
    assert_idle(loop)


def test_a_job_cancelled_while_it_speaks_ends_within_a_step_and_keeps_nothing() -> None:
    loop = new_loop()
    heard, other = Heard(), Heard()
    handle = loop.submit(job(PROMPT, 50, listener=heard))
    loop.submit(job([7], 20, listener=other))
    step(loop, 5)
    said = len(heard.ids())
    assert said >= 2

    handle.cancel()
    loop.run_until_idle()

    assert len(heard.ids()) == said
    assert not heard.closed
    assert loop.cache.lookup("", np.array([*PROMPT, 1], dtype=np.int32)) is None
    assert other.ids() == continuation([7], 20)
    assert_idle(loop)


# faults


def test_a_model_that_fails_in_a_prompt_fails_that_job_alone(caplog: pytest.LogCaptureFixture) -> None:
    model = HashModel()
    model.fails_when = lambda step: bool((step.ids == 49).any())
    loop = new_loop(model)
    good, bad = Heard(), Heard()
    loop.submit(job(PROMPT, 8, listener=good))
    step(loop, 3)

    loop.submit(job([49] * 20, listener=bad))
    loop.run_until_idle()

    assert bad.failed == ["the prompt could not be computed"]
    assert bad.report is None
    assert "planted fault" in caplog.text
    assert good.ids() == continuation(PROMPT, 8)
    assert_idle(loop)


def test_a_model_that_fails_in_a_round_fails_the_jobs_of_that_round_and_the_loop_goes_on() -> None:
    model = HashModel()
    loop = new_loop(model)
    heard = [Heard(), Heard()]
    for number, listener in enumerate(heard):
        loop.submit(job([number, 5], 30, listener=listener))
    step(loop, 6)
    late = Heard()
    model.fails_when = lambda step: len(step.lanes) == 2

    step(loop)
    model.fails_when = lambda step: False
    loop.submit(job(PROMPT, listener=late))
    loop.run_until_idle()

    assert [listener.failed for listener in heard] == [["the next token could not be computed"]] * 2
    assert not any(listener.closed for listener in heard)
    assert late.ids() == continuation(PROMPT, 5)
    assert_idle(loop)


@pytest.mark.parametrize("place", ["started", "tokens", "ended", "closed", "everywhere"])
def test_a_listener_that_raises_loses_its_own_job_alone(place: str) -> None:
    loop = new_loop()
    good, bad = Heard(), Heard(raises_at=place)
    loop.submit(job(PROMPT, 6, listener=bad))
    loop.submit(job([1, 2], 6, listener=good))

    loop.run_until_idle()

    assert good.ids() == continuation([1, 2], 6)
    assert good.closed
    assert len(bad.failed) == (place != "closed")
    assert_idle(loop)


def test_a_job_that_failed_hears_it_once() -> None:
    model = HashModel()
    model.fails_when = lambda step: True
    loop = new_loop(model)
    heard = Heard(raises_at="failed")
    loop.submit(job(PROMPT, listener=heard))

    loop.run_until_idle()

    assert len(heard.failed) == 1
    assert_idle(loop)


def test_a_cache_that_raises_at_admission_fails_that_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop()
    admit = loop.cache.admit

    def moody(namespace: str, *arguments: object, **options: object) -> object:
        if namespace == "bad":
            raise OSError("the disk is gone")
        return admit(namespace, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop.cache, "admit", moody)
    good, bad = Heard(), Heard()
    loop.submit(job(PROMPT, listener=bad, namespace="bad"))
    loop.submit(job(PROMPT, listener=good))
    loop.run_until_idle()

    assert len(bad.failed) == 1
    assert good.ids() == continuation(PROMPT, 5)
    assert_idle(loop)


# admission


def test_a_job_that_can_never_fit_is_refused_at_once_with_both_numbers() -> None:
    loop = new_loop(sessions=2)

    with pytest.raises(AdmissionImpossible, match=r"got \d+ bytes needed, allowed \d+"):
        loop.submit(job(PROMPT, num_choices=3))


def test_a_job_waits_until_the_budget_has_room_for_it() -> None:
    loop = new_loop(sessions=2)
    heard = [Heard() for _ in range(5)]
    for number, listener in enumerate(heard):
        loop.submit(job([number, 1], 6, listener=listener))
    step(loop, 2)
    assert [listener.report is not None for listener in heard].count(True) <= 2

    loop.run_until_idle()

    assert [listener.ids() for listener in heard] == [continuation([number, 1], 6) for number in range(5)]
    assert loop.cache.counts.waits > 0
    assert_idle(loop)


def test_no_more_lanes_than_allowed_run_at_once_and_one_wide_job_still_runs() -> None:
    model = HashModel()
    loop = new_loop(model, max_lanes=2)
    heard = [Heard() for _ in range(4)]
    for number, listener in enumerate(heard):
        loop.submit(job([number], 6, listener=listener, num_choices=3 if number == 2 else 1))

    loop.run_until_idle()

    assert all(listener.closed for listener in heard)
    assert max(len(rows) for rows in model.steps) == 3
    assert all(len(rows) in (1, 2, 3) for rows in model.steps)
    assert_idle(loop)


# the thread


def wait_until(condition: object, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def test_a_running_loop_answers_jobs_from_any_thread() -> None:
    loop = new_loop()
    loop.start()
    heard = [Heard() for _ in range(8)]
    threads = [threading.Thread(target=loop.submit, args=(job([n, 3], 6, listener=heard[n]),)) for n in range(8)]
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: all(listener.closed for listener in heard))
    finally:
        loop.stop()

    assert [listener.ids() for listener in heard] == [continuation([n, 3], 6) for n in range(8)]
    assert_idle(loop)


def test_a_cancel_from_another_thread_is_heard_while_the_loop_runs() -> None:
    loop = new_loop()
    speaks = threading.Event()
    heard, after = Heard(on_token=speaks.set), Heard()
    loop.start()
    try:
        handle = loop.submit(job(PROMPT, 4000, listener=heard))
        assert speaks.wait(5)
        handle.cancel()
        loop.submit(job([1], listener=after))
        wait_until(lambda: after.closed and loop.cache.reserved_bytes == 0)
    finally:
        loop.stop()

    assert not heard.closed
    assert len(heard.ids()) < 4000
    assert_idle(loop)


def test_stopping_tells_everybody_who_still_waits_even_after_a_listener_that_raises() -> None:
    loop = new_loop(max_lanes=1)
    speaks = threading.Event()
    heard = [Heard(on_token=speaks.set, raises_at="failed"), Heard(), Heard()]
    loop.start()
    for listener in heard:
        loop.submit(job(PROMPT, 4000, listener=listener))
    assert speaks.wait(5)

    loop.stop()

    assert [listener.failed for listener in heard] == [["the server is shutting down"]] * 3
    assert_idle(loop)


def test_a_job_submitted_to_a_stopped_loop_is_told_so() -> None:
    loop = new_loop()
    loop.start()
    loop.stop()
    heard = Heard()

    loop.submit(job(PROMPT, listener=heard))

    assert heard.failed == ["the server is shutting down"]


def test_a_clock_that_stands_still_changes_no_answer() -> None:
    prompt = list(range(40)) * 10

    assert run(new_loop(clock=lambda: 1.0), prompt).ids() == continuation(prompt, 5)


def test_a_step_that_fails_outside_every_job_fails_who_was_there_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop()
    failures = iter([True])

    def moody(*arguments: object) -> object:
        if next(failures, False):
            raise ValueError("planted fault")
        return schedule(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("zllm_ref.runtime.loop.schedule", moody)
    lost, late = Heard(), Heard()
    loop.submit(job(PROMPT, listener=lost))
    loop.start()
    try:
        wait_until(lambda: lost.failed)
        loop.submit(job(PROMPT, listener=late))
        wait_until(lambda: late.closed)
    finally:
        loop.stop()

    assert lost.failed == ["the runtime's step failed"]
    assert late.ids() == continuation(PROMPT, 5)
    assert_idle(loop)
