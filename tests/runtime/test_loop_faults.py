"""Whatever goes wrong in the loop fails its own job and gives everything back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.stub_model import PROMPT, HashModel, Heard, assert_idle, continuation, job, new_loop, step

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
