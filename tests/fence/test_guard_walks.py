"""The guard's short ways are the long way: calm tokens, clones, rollbacks and strides change no verdict."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fence.vocabularies import text_mode_vocabulary
from zllm_ref.canonical.request import FunctionTool, ToolChoiceAuto
from zllm_ref.dialect import dialect_for
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.fence import FenceCompiler, FenceRequest, GenerationGuard, GuardSettings, Phase, TokenFence, Verdict, build_fence
from zllm_ref.fence.piece_kinds import piece_kinds
from zllm_ref.fence.token_log import CHUNK, TokenLog
from zllm_ref.tokenizer import byte_vocabulary

VOCABULARY = byte_vocabulary()
COMPILERS = (FenceCompiler(VOCABULARY), FenceCompiler(text_mode_vocabulary()))
"""Triggers that have ids, and triggers that are spelled."""
WORDS = piece_kinds([f" w{'abcdefghij'[n % 10]}{'abcdefghij'[n // 10]}".encode() for n in range(100)])
TIGHT = GuardSettings(copies=3, repeated_words=26, repeated_token=24, repeated_quiet=36, restart_opening=6, restart_words=1,
                      restart_between=2, reasoning_budget=70)  # fmt: skip
"""Sees much within a few dozen tokens, and still takes most of them for calm."""


def plainly_loops(tokens: list[int], settings: GuardSettings) -> bool:
    """Every period, compared token by token from the end."""
    for period in range(1, min(128, len(tokens)) + 1):
        run = 0
        while run + period < len(tokens) and tokens[-1 - run] == tokens[-1 - run - period]:
            run += 1
        least = settings.repeated_token if period == 1 else settings.repeated_words
        if run and run + period >= max(least, settings.copies * period):
            return True
    return False


@settings(max_examples=max(30, settings().max_examples // 3))
@given(
    st.lists(st.integers(0, 99), max_size=90),
    st.lists(st.integers(0, 99), min_size=1, max_size=40),
    st.sampled_from([GuardSettings(), GuardSettings(repeated_words=24, repeated_token=12), GuardSettings(copies=2)]),
)
@example([], [0] * 7 + [1], GuardSettings())
@example([5], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2], GuardSettings())
@example([], [1], GuardSettings())
@example([9, 8, 7], [0] * 7 + [1], GuardSettings())  # every look falls into the run of one word inside the pattern
def test_a_loop_is_seen_at_the_token_that_makes_it_one(before: list[int], pattern: list[int], settings: GuardSettings) -> None:
    tokens = before + pattern * (2 + max(96, 4 * len(pattern)) // len(pattern))
    guard = GenerationGuard(settings, WORDS, Phase.TEXT)

    for length, token_id in enumerate(tokens, 1):
        guard.take(token_id) or guard.advance(token_id, Phase.TEXT, is_free=True, may_end=False)
        assert (guard.verdict is not Verdict.GO_ON) == plainly_loops(tokens[:length], settings), length
        if guard.verdict is not Verdict.GO_ON:
            break
    assert guard.verdict is not Verdict.GO_ON


@given(st.lists(st.integers(0, 6), max_size=200), st.integers(1, 3))
@example([0, 1, 0, 5, 1, 6, 6, 0, 5, 3], 3)  # a passage that begins alike for the third time, between two looks
@example(random.Random(1).choices([0, 1, 2, 5, 6], k=80), 1)  # a budget that ends between two looks
def test_calm_tokens_change_nothing_that_an_advance_would_have_changed(ids: list[int], times: int) -> None:
    kinds = piece_kinds([b" one", b" two", b"3", b"\n", b"```", " 四".encode(), b" five"])
    short, long = (GenerationGuard(TIGHT, kinds, Phase.REASONING) for _ in range(2))

    for token_id in ids * times:
        short.take(token_id) or short.advance(token_id, Phase.REASONING, is_free=True, may_end=False)
        long.advance(token_id, Phase.REASONING, is_free=True, may_end=False)
        assert (short.verdict, short.excluded, short.explain()) == (long.verdict, long.excluded, long.explain())


def begin(name: str, starts_in_reasoning: bool, compiler: FenceCompiler = COMPILERS[0]) -> TokenFence:
    dialect = dialect_for(None, compiler.vocabulary, name)
    tools = (FunctionTool("list_rooms"),)
    request = FenceRequest(
        dialect.fence_grammar(tools),
        tools,
        ToolChoiceAuto(),
        starts_in_reasoning=starts_in_reasoning and dialect.definition.reasoning is not None,
        may_open_reasoning=False,
    )
    fence = build_fence(request, compiler, TIGHT)
    assert fence is not None
    return fence


def assert_same(walked: TokenFence, fresh: TokenFence) -> None:
    assert (walked.phase, walked.verdict, tuple(walked.forced())) == (fresh.phase, fresh.verdict, tuple(fresh.forced()))
    ours, theirs = walked.allowed(), fresh.allowed()
    assert ours is not None
    assert theirs is not None
    assert ours.tobytes() == theirs.tobytes()
    assert walked.explain() == fresh.explain()


texts = st.lists(
    st.sampled_from(
        ["a", "<", "\n", "one two ", "1", "```", "x < y", "</", "<tool_cal", "</think", "<｜DSML", "\n\n<", "abcdefghijklm"]
    ),
    max_size=40,
).map("".join)


@settings(max_examples=max(60, settings().max_examples))
@given(st.sampled_from(sorted(DEFINITIONS)), st.booleans(), st.sampled_from(COMPILERS), texts, st.data())
def test_a_fence_that_was_cloned_and_rolled_back_in_free_text_is_a_fresh_one(
    name: str, starts_in_reasoning: bool, compiler: FenceCompiler, text: str, data: st.DataObject
) -> None:
    walked, said = begin(name, starts_in_reasoning, compiler), list[int]()
    wanted = VOCABULARY.encode_text(text)
    for _ in range(6):
        back = data.draw(st.integers(0, min(len(said), data.draw(st.sampled_from([3, 400])))))
        walked.rollback(back)
        del said[len(said) - back :]
        for token_id in wanted[len(said) : len(said) + data.draw(st.integers(0, 90))]:
            next_id = (tuple(walked.forced()) or (token_id,))[0]
            if walked.legal_prefix((next_id,)) != 1:
                break
            walked.advance(next_id)
            said.append(next_id)
        kept = walked
        if data.draw(st.booleans()):  # a draft that is given up leaves the true fence as it was, whichever of both goes on
            walked = kept.clone()
            draft = kept if data.draw(st.booleans()) else walked.clone()
            for token_id in wanted[len(said) : len(said) + 9]:
                if draft.legal_prefix((token_id,)) == 1:
                    draft.advance(token_id)

        fresh = begin(name, starts_in_reasoning, compiler)
        for token_id in said:
            fresh.advance(token_id)
        assert_same(walked, fresh)


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name.startswith("dsml")])
def test_a_bracket_arms_the_trigger_however_often_it_was_seen_before(name: str) -> None:
    fence = begin(name, False)
    for token_id in VOCABULARY.encode_text("a < b < c << d <"):
        fence.advance(token_id)

    assert fence.legal_prefix((VOCABULARY.markers["｜DSML｜"],)) == 1
    fence.rollback(1)
    assert fence.legal_prefix((VOCABULARY.markers["｜DSML｜"],)) == 0


def test_a_rollback_among_calm_tokens_leaves_a_later_one_right() -> None:
    for _ in range(2):  # the second time all letters are known to be calm
        fence = begin("dsml-v4", False)
        for token_id in VOCABULARY.encode_text("pq<rst"):
            fence.advance(token_id)
        fence.rollback(1)
        fence.advance(ord("<"))
        fence.rollback(3)

    fresh = begin("dsml-v4", False)
    for token_id in VOCABULARY.encode_text("pq<"):
        fresh.advance(token_id)
    assert_same(fence, fresh)


def test_more_than_was_advanced_cannot_be_taken_back_and_nothing_has_changed() -> None:
    fence = begin("glm-4.7", False)
    for token_id in VOCABULARY.encode_text("some words\nmore"):
        fence.advance(token_id)
    before = fence.explain()

    with pytest.raises(ValueError, match="no more than were advanced"):
        fence.rollback(len("some words\nmore") + 1)

    assert fence.explain() == before
    fence.rollback(len("some words\nmore"))
    assert_same(fence, begin("glm-4.7", False))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=12))
def test_a_log_is_a_list(steps: list[tuple[bool, int]]) -> None:
    log, plain, others = TokenLog(), list[int](), list[tuple[TokenLog, list[int]]]()
    for grows, count in steps:
        if grows:
            for _ in range(count):
                log.tail.append(len(plain) * 7 % 1000)
                plain.append(len(plain) * 7 % 1000)
            log.settle()
        else:
            others.append((log.clone(), plain.copy()))
            count = min(count, len(plain))
            log.drop(count)
            del plain[len(plain) - count :]
        for one, expected in [(log, plain), *others]:
            assert [one[place] for place in range(len(one))] == expected
            assert len(one.tail) >= min(len(expected), CHUNK)


def test_a_clone_costs_the_same_after_a_long_answer() -> None:
    """By what it copies: the tail of the tokens, no more."""
    fence = begin("chatml-qwen3", False)
    for number in range(20_000):
        fence.advance(97 + number * number % 23)

    copied = fence.clone()._guard
    assert copied is not None
    assert len(copied._log) == 20_000
    assert len(copied._log.tail) < 2 * CHUNK + 32
