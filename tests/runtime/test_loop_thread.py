"""The loop under a budget and in its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.runtime.stub_model import PROMPT, HashModel, Heard, assert_idle, continuation, job, new_loop, run, step
from zllm_ref.cache.admission import AdmissionImpossible
from zllm_ref.runtime.schedule import schedule

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


def wait_until(condition: object, seconds: float = 60.0) -> None:
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
    speaks, is_cancelled = threading.Event(), threading.Event()
    heard, after = Heard(on_token=lambda: speaks.set() or wait_until(is_cancelled.is_set)), Heard()
    loop.start()
    try:
        handle = loop.submit(job(PROMPT, 4000, listener=heard))
        assert speaks.wait(60)
        handle.cancel()
        is_cancelled.set()
        loop.submit(job([1], listener=after))
        wait_until(lambda: after.closed and loop.cache.reserved_bytes == 0)
    finally:
        loop.stop()

    assert not heard.closed
    assert len(heard.ids()) == 1
    assert_idle(loop)


def test_stopping_tells_everybody_who_still_waits_even_after_a_listener_that_raises() -> None:
    loop = new_loop(max_lanes=1)
    speaks = threading.Event()
    speaker = Heard(on_token=lambda: speaks.set() or wait_until(lambda: loop._stopping), raises_at="failed")
    heard = [speaker, Heard(), Heard()]
    loop.start()
    for listener in heard:
        loop.submit(job(PROMPT, 4000, listener=listener))
    assert speaks.wait(60)

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


@pytest.mark.parametrize("clock", [lambda: 1.0, time.monotonic, lambda: 10 * time.monotonic()], ids=["still", "true", "slow"])
def test_no_clock_changes_an_answer(clock: Callable[[], float]) -> None:
    prompt = list(range(40)) * 30

    assert run(new_loop(clock=clock), prompt).ids() == continuation(prompt, 5)


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
