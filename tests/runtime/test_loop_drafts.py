"""The loop with drafters: fewer steps, and otherwise every answer, end, saved state and book as without them."""

from __future__ import annotations

import pytest
import torch

from tests.runtime.stub_drafters import HashOracle, HashOracles, Noise, Others
from tests.runtime.stub_model import (
    PROMPT,
    VOCAB,
    ForcingFence,
    HashModel,
    Heard,
    assert_idle,
    continuation,
    job,
    new_loop,
    run,
)
from zllm_ref.cache.admission import AdmissionImpossible
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.draft.prompt_lookup import PromptLookupFactory
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.sampler import SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, RoundReport
from zllm_ref.runtime.state import SessionState

GREEDY = SamplingParameters()


@pytest.mark.parametrize("has_ring", [False, True])
@pytest.mark.parametrize("lies", [0, 1, 2, 3, 7])
def test_an_answer_is_the_same_whoever_guesses(lies: int, has_ring: bool) -> None:
    loop = new_loop(HashModel(has_ring=has_ring), drafters=HashOracles(lies))

    heard = run(loop, max_new_tokens=23)

    assert heard.ids() == continuation(PROMPT, 23)
    assert heard.ended == {0: (EndReason.MAX_TOKENS, None)}
    assert_idle(loop)


def test_right_guesses_save_steps_and_are_counted() -> None:
    model = HashModel()
    loop = new_loop(model, drafters=HashOracles(length=4))

    heard = run(loop, max_new_tokens=21)

    assert model.steps == [(5,), (5,), (5,), (5,), (5,)]  # the prompt; then one pending id and four guesses, all right
    assert [token.drafted for token in heard.tokens[0]] == [False, *([True] * 4 + [False]) * 4]
    assert (loop.draft_counts.rounds, loop.draft_counts.drafted, loop.draft_counts.accepted) == (4, 16, 16)


def test_ids_that_do_not_exist_are_no_guesses() -> None:
    model = HashModel()
    model.fails_when = lambda step: not bool(((step.ids >= 0) & (step.ids < VOCAB)).all())

    heard = run(new_loop(model, drafters=Others(kind=Noise)), max_new_tokens=30)

    assert heard.ids() == continuation(PROMPT, 30)
    assert not heard.failed


# what is told, and when


def test_tokens_of_a_round_are_told_position_by_position() -> None:
    heard, calls = Heard(), []
    heard.on_token = lambda: calls.append(len(heard.ids()))
    loop = new_loop(drafters=HashOracles(length=3))
    loop.submit(job(PROMPT, 9, listener=heard))
    loop.run_until_idle()

    assert calls == list(range(1, 10))


def test_who_looks_on_is_told_of_each_round_and_its_rejected_guesses() -> None:
    reports: list[RoundReport] = []
    loop = new_loop(drafters=HashOracles(lies=7, length=4))

    heard = run(loop, max_new_tokens=12, on_round=reports.append)

    said = [*PROMPT, *heard.ids()]
    assert sum(report.num_tokens for report in reports) == 11  # all but the prompt's own first
    assert [report.round for report in reports] == list(range(1, len(reports) + 1))
    for report in reports:
        guessed = list(report.guesses)
        assert report.num_tokens == report.right + 1
        assert guessed[: report.right] == said[report.position : report.position + report.right]
        if report.right < len(guessed):
            assert (report.position + report.right) % 7 == 0, "the one that was a lie"
            assert guessed[report.right] != said[report.position + report.right]
    assert any(report.right < len(report.guesses) for report in reports)


def test_plain_rounds_are_reported_too() -> None:
    reports: list[RoundReport] = []

    run(new_loop(), max_new_tokens=4, on_round=reports.append)

    assert [(report.position, report.num_tokens, report.guesses) for report in reports] == [(6, 1, ()), (7, 1, ()), (8, 1, ())]


# ends in the middle of a draft


@pytest.mark.parametrize("has_ring", [False, True])
@pytest.mark.parametrize("place", range(1, 8))
def test_a_stop_id_inside_a_draft_ends_the_answer_there_and_leaves_its_state(place: int, has_ring: bool) -> None:
    prompt = [7, 7, place]
    said = continuation(prompt, 30)
    stop = next(token for token in said[place:] if token not in said[:place])
    end = said.index(stop)
    loop = new_loop(HashModel(has_ring=has_ring), drafters=HashOracles(length=8))

    heard = run(loop, prompt, 30, stop_ids=[stop])

    assert heard.ids() == said[: end + 1]
    assert heard.ended == {0: (EndReason.STOP_TOKEN, stop)}
    again = run(loop, [*prompt, *heard.ids(), 9], 4)
    assert again.report is not None
    assert again.report.cached_tokens == len(prompt) + end  # all but the stop id, as without drafts
    assert again.ids() == continuation([*prompt, *heard.ids(), 9], 4)


@pytest.mark.parametrize("has_ring", [False, True])
@pytest.mark.parametrize("place", range(1, 9))
def test_a_listener_that_has_enough_ends_the_answer_inside_a_draft(place: int, has_ring: bool) -> None:
    loop = new_loop(HashModel(has_ring=has_ring), drafters=HashOracles(length=8))
    heard = Heard(stop_at=place)
    loop.submit(job(PROMPT, 30, listener=heard))
    loop.run_until_idle()

    assert heard.ids() == continuation(PROMPT, place)
    assert heard.reason is EndReason.STOPPED
    again = run(loop, [*PROMPT, *heard.ids(), 9], 4)
    assert again.report is not None
    assert again.report.cached_tokens == len(PROMPT) + place - 1
    assert again.ids() == continuation([*PROMPT, *heard.ids(), 9], 4)
    assert_idle(loop)


def test_no_guess_reaches_beyond_the_limit_of_the_job_or_the_context() -> None:
    for limit in range(1, 12):
        model = HashModel(context_length=len(PROMPT) + limit)
        loop = new_loop(model, drafters=HashOracles(length=8))

        heard = run(loop, max_new_tokens=limit)

        assert heard.ids() == continuation(PROMPT, limit)
        assert heard.reason is EndReason.CONTEXT_FULL
        assert sum(rows for (rows,) in model.steps) == len(PROMPT) + limit - 1  # the last token of an answer needs no row


# several lanes


def test_each_choice_has_a_drafter_of_its_own() -> None:
    factory = HashOracles(length=3)
    plans = tuple(ChoicePlan(SamplingParameters(logit_bias=((choice, 100.0),) if choice else ())) for choice in range(3))
    heard = Heard()
    loop = new_loop(drafters=factory)
    loop.submit(job(PROMPT, 9, listener=heard, plans=plans))
    loop.run_until_idle()

    assert heard.ids(0) == continuation(PROMPT, 9)
    assert heard.ids(1) == [1] * 9
    assert heard.ids(2) == [2] * 9
    assert len(factory.made) == 3
    assert all(accepted == proposed for proposed, accepted in factory.made[0].judged)
    for oracle in factory.made[1:]:
        assert any(accepted < proposed for proposed, accepted in oracle.judged)


def test_a_script_is_played_beside_lanes_with_guesses() -> None:
    class Script:
        def next_ids(self, produced: list[int]) -> list[int]:
            return [] if len(produced) >= 6 else [40 + len(produced), 41 + len(produced)]

    loop = new_loop(drafters=HashOracles(length=3))
    scripted, free = Heard(), Heard()
    loop.submit(job([1, 2], 30, listener=scripted, plans=(ChoicePlan(GREEDY, script=Script()),)))  # type: ignore[arg-type]
    loop.submit(job(PROMPT, 15, listener=free))
    loop.run_until_idle()

    assert scripted.ids() == [40, 41, 42, 43, 44, 45]
    assert scripted.reason is EndReason.STOPPED
    assert free.ids() == continuation(PROMPT, 15)


# fences


def test_ids_that_a_fence_forces_are_free_guesses() -> None:
    said = continuation(PROMPT, 3)
    model, fence = HashModel(), ForcingFence(said[2], (40, 41, 42))
    loop = new_loop(model, drafters=HashOracles(length=3))

    heard = run(loop, max_new_tokens=10, plans=(ChoicePlan(GREEDY, fence),))

    plain = run(new_loop(), max_new_tokens=10, plans=(ChoicePlan(GREEDY, ForcingFence(said[2], (40, 41, 42))),))
    assert heard.ids()[:6] == [*said, 40, 41, 42]
    assert heard.ids() == plain.ids()
    assert [token.forced for token in heard.tokens[0]][:6] == [False, False, False, True, True, True]
    assert fence.advanced == heard.ids()
    # three guesses were asked for: two before the forced ids, and the first forced one in the place of the third
    assert model.steps[1] == (4,)


def test_what_the_fence_forbids_is_no_guess_and_never_comes() -> None:
    said = continuation(PROMPT, 12)
    fence = ForcingFence(-1, (), frozenset({said[3]}))

    plain = run(new_loop(), max_new_tokens=12, plans=(ChoicePlan(GREEDY, ForcingFence(-1, (), frozenset({said[3]}))),))
    heard = run(new_loop(drafters=HashOracles(length=5)), max_new_tokens=12, plans=(ChoicePlan(GREEDY, fence),))

    assert heard.ids() == plain.ids()
    assert said[3] not in heard.ids()


# bytes


def test_what_drafters_hold_is_reserved_before_a_job_starts_and_given_back() -> None:
    model = HashModel()
    one = model.state.session_bytes(10) + 10 * 1000
    cache = PrefixCache(model.state.layout(), 2 * one, identity="hash")
    loop = RuntimeLoop(model, cache, drafters=HashOracles(bytes_per_token=1000))
    for prompt in ([1, 2], [3, 4], [5, 6]):
        loop.submit(job(prompt, 8))
    loop.step()

    assert cache.reserved_bytes == 2 * one  # the third waits
    loop.run_until_idle()
    assert_idle(loop)

    with pytest.raises(AdmissionImpossible):
        loop.submit(job([1, 2], 8, num_choices=3))
    RuntimeLoop(model, cache).submit(job([1, 2], 8, num_choices=3))  # without drafters it would fit


# along the prompt, and after a restore


def test_a_drafter_follows_every_row_of_a_prompt_in_chunks() -> None:
    """It says so itself where rows are missing between two chunks."""
    prompt = [(7 * place) % VOCAB for place in range(900)]
    model, factory = HashModel(), HashOracles(length=3)

    heard = run(new_loop(model, drafters=factory), prompt, 6)

    assert heard.ids() == continuation(prompt, 6)
    assert not heard.failed
    assert len([rows for rows in model.steps if rows[0] > 100]) > 1
    (drafter,) = factory.made
    assert drafter.rows == len(prompt) + 5


@pytest.mark.parametrize("has_ring", [False, True])
def test_a_drafter_follows_from_where_a_restored_state_ends(has_ring: bool) -> None:
    factory = HashOracles(lies=5, length=4)
    loop = new_loop(HashModel(has_ring=has_ring), drafters=factory)
    first = run(loop, max_new_tokens=20)
    prompt = [*PROMPT, *first.ids(), 8, 9]
    factory.made.clear()

    second = run(loop, prompt, 20)

    assert second.report is not None
    assert second.report.cached_tokens == len(PROMPT) + 19
    assert second.ids() == continuation(prompt, 20)
    (drafter,) = factory.made
    assert any(accepted for _, accepted in drafter.judged)


def test_lookup_finds_in_a_restored_prompt_what_was_never_computed_here() -> None:
    """Ids are known at once, whatever rows the state had already."""
    loop = new_loop(drafters=PromptLookupFactory())
    fence_line = [11, 12, 13, 14, 15, 16, 17, 18]
    prompt = [*fence_line, *fence_line, 30, *fence_line[:4]]
    run(loop, [*prompt, 5], 1)
    bias = SamplingParameters(logit_bias=tuple((token, 0.0) for token in fence_line))

    heard = run(loop, prompt, 3, plans=(ChoicePlan(bias, Line(tuple(fence_line[4:]))),))

    assert heard.report is not None
    assert heard.report.cached_tokens > 0
    assert heard.ids() == fence_line[4:7]
    assert loop.draft_counts.accepted == 1  # of three tokens the first came from the prompt, the last needs no row


class Line(ForcingFence):
    """Allows one id at each place, and does not say that it is forced."""

    def __init__(self, ids: tuple[int, ...], advanced: list[int] | None = None) -> None:
        super().__init__(-1, (), frozenset(), advanced or [])
        self._line = ids

    def allowed(self):  # type: ignore[no-untyped-def]
        self.forbidden = frozenset(range(64)) - {self._line[min(len(self.advanced), len(self._line) - 1)]}
        return super().allowed()

    def clone(self) -> Line:
        return Line(self._line, list(self.advanced))


def test_a_stub_that_is_told_something_false_says_so() -> None:
    """The oracle's own checks can fail: else following would be tested by nothing."""
    oracle = HashOracle(SessionState(HashModel().state, 10, torch.device("cpu")), list(PROMPT))
    with pytest.raises(AssertionError, match="what it is told"):
        oracle.follow(0, torch.zeros(1, 1), [PROMPT[1] + 1])
    with pytest.raises(AssertionError, match="the row is"):
        oracle.follow(0, torch.zeros(1, 1), [PROMPT[1]])
