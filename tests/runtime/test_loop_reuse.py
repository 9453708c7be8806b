"""The loop and its cache: what was computed once is found again, and what cannot be read or kept costs nothing."""

from __future__ import annotations

import logging

import pytest

from tests.runtime.stub_model import PROMPT, HashModel, assert_idle, continuation, new_loop, run

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

    monkeypatch.setattr("zllm_ref.runtime.admissions.restore", broken)
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
