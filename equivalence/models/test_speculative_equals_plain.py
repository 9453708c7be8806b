"""Speculation changes time and nothing else: the same tokens, the same state, whoever guesses and however badly."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from zllm_ref.runtime.decode import decode_round, first_tokens
from zllm_ref.runtime.draft.drafter import Drafter
from zllm_ref.runtime.draft.mtp import MtpDrafter
from zllm_ref.runtime.draft.prompt_lookup import PromptLookup
from zllm_ref.runtime.draft.small_model import SmallModelDrafter
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.ports import TokenFence
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob, Sequence
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step
from zllm_ref.runtime.verify import DraftedSequence, Verified, fenced, verify_round
from zllm_ref.runtime.weights import seeded_checkpoint

from ..bits import assert_bits_equal
from ..conftest import EXAMPLES

MODELS = ("tiny-llama", "tiny-glm4-moe", "tiny-deepseek-v32", "tiny-deepseek-v4")
NEW_TOKENS = 22
FEW_EXAMPLES = settings(EXAMPLES, max_examples=max(4, EXAMPLES.max_examples // 4))
"""Each is a whole answer."""


class Silent:
    """A listener that hears nothing: the rounds here tell a function instead."""


@dataclass
class PatternFence:
    """Every third id is forbidden, which third moves with the position; after every fifth token two ids must follow."""

    count: int = 0

    def allowed(self) -> NDArray[np.int32]:
        bits = np.array([(token + self.count) % 3 != 0 for token in range(512)], dtype=np.bool_)
        return np.packbits(bits, bitorder="little").view(np.int32)

    def forced(self) -> Ids[int]:
        return [11, 12] if self.count % 7 == 5 else []

    def advance(self, token_id: int) -> None:
        is_forced = self.count % 7 in (5, 6)
        if not is_forced and (token_id + self.count) % 3 == 0:
            raise ValueError(f"fence: got {token_id} at {self.count}")
        self.count += 1

    def clone(self) -> TokenFence:
        return PatternFence(self.count)

    def rollback(self, num_tokens: int) -> None:
        self.count -= num_tokens

    def explain(self) -> str:
        return f"after {self.count}"


@dataclass
class Oracle:
    """Knows the answer and lies at some places."""

    answer: list[int]
    lies: frozenset[int] = frozenset()
    length: int = 4
    known: int = 1
    prompt: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)

    def follow(self, start: int, hidden: Tensor, next_ids: Ids[int]) -> None:
        assert hidden.shape[0] == len(next_ids)
        self.known = start + len(next_ids) + 1 - self.prompt

    def propose(self, limit: int) -> list[int]:
        places = range(self.known, min(self.known + min(limit, self.length), len(self.answer)))
        return [(self.answer[place] + 1) % 256 if place in self.lies else self.answer[place] for place in places]

    def chances(self) -> Ids[float]:
        return ()

    def judge(self, proposed: int, accepted: int) -> None:
        self.seen.append((proposed, accepted))


@cache
def model_of(name: str) -> Model:
    return build_model(seeded_checkpoint(name, torch.float32), Numerics(torch.float32), drafting=True)


def begin(
    model: Model, prompt: list[int], parameters: SamplingParameters, fence: TokenFence | None = None, new_tokens: int = NEW_TOKENS
) -> tuple[Sequence, Tensor]:
    """A sequence whose prompt is computed and whose first token is sampled, and the hidden rows of the prompt."""
    job = GenerationJob(
        np.array(prompt, dtype=np.int32),
        new_tokens,
        frozenset({500}),
        (ChoicePlan(parameters, fence),),
        Silent(),  # type: ignore[arg-type]
    )
    state = SessionState(model.state, len(prompt) + new_tokens, model.device)
    step = build_step([(state, prompt)], model.numerics, model.device)
    hidden = model.forward(step)
    commit_step(step)
    sequence = first_tokens(model, job, state, hidden[len(prompt) - 1 : len(prompt)], 512)[0]
    tell(sequence, sequence.first)
    return sequence, hidden[: len(prompt)]


def tell(sequence: Sequence, tokens: list[SampledToken]) -> None:
    """The loop's own rule for the end of a sequence; 77 stands for a stop string."""
    if any(token.token_id in sequence.job.stop_ids for token in tokens):
        sequence.ended = EndReason.STOP_TOKEN
    elif any(token.token_id == 77 for token in tokens):
        sequence.ended = EndReason.STOPPED
    elif len(sequence.produced) >= sequence.job.max_new_tokens:
        sequence.ended = EndReason.MAX_TOKENS


def plain(model: Model, sequence: Sequence) -> Sequence:
    while sequence.ended is None:
        (tokens,) = decode_round(model, [sequence], 512)
        tell(sequence, tokens)
    return sequence


def speculative(model: Model, sequence: Sequence, drafter: Drafter) -> list[Verified]:
    results = []
    while sequence.ended is None:
        results += verify_round(model, [DraftedSequence(sequence, drafter)], 512, tell)
        sequence.check()
        assert len(results) <= NEW_TOKENS
    return results


def assert_same_end(got: Sequence, expected: Sequence) -> None:
    assert got.produced == expected.produced
    assert (got.pending, got.ended) == (expected.pending, expected.ended)
    assert got.state.length == expected.state.length
    for tensor in got.state.declaration.tensors:
        if not tensor.advisory:
            mine, theirs = (sequence.state.tensors[tensor.name] for sequence in (got, expected))
            if tensor.grows:
                mine, theirs = (rows[:, : tensor.rows_for(got.state.length)] for rows in (mine, theirs))
            assert_bits_equal(tensor.name, mine, theirs)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 256, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


SAMPLINGS = {
    "greedy": SamplingParameters(),
    "sampled": SamplingParameters(temperature=0.8, seed=5, top_p=0.95),
    "penalised": SamplingParameters(temperature=0.6, seed=6, frequency_penalty=0.4, repetition_penalty=1.2),
}


@pytest.mark.parametrize("sampling", list(SAMPLINGS))
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_any_guesses_give_the_tokens_and_the_state_of_plain_rounds(name: str, sampling: str) -> None:
    model, prompt = model_of(name), prompt_of(61)
    expected = plain(model, begin(model, prompt, SAMPLINGS[sampling])[0])

    @FEW_EXAMPLES
    @given(st.frozensets(st.integers(0, NEW_TOKENS), max_size=8), st.integers(1, 8))
    def check(lies: frozenset[int], length: int) -> None:
        sequence, _ = begin(model, prompt, SAMPLINGS[sampling])
        results = speculative(model, sequence, Oracle(expected.produced, lies, length, prompt=61))
        assert_same_end(sequence, expected)
        assert all(result.accepted <= result.proposed <= length for result in results)

    check()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("accepted", range(6))
@torch.inference_mode()
def test_after_a_round_the_state_is_that_of_as_many_single_rounds(name: str, accepted: int) -> None:
    model, prompt = model_of(name), prompt_of(62, seed=1)
    answer = plain(model, begin(model, prompt, SamplingParameters())[0]).produced
    drafted, _ = begin(model, prompt, SamplingParameters())
    single, _ = begin(model, prompt, SamplingParameters())

    (result,) = verify_round(
        model, [DraftedSequence(drafted, Oracle(answer, frozenset({accepted + 1}), 5, prompt=62))], 512, tell
    )
    for _ in range(accepted + 1):
        tell(single, decode_round(model, [single], 512)[0])

    assert (result.proposed, result.right, result.accepted) == (5, accepted, accepted)
    assert_same_end(drafted, single)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-deepseek-v4"])
@pytest.mark.parametrize("sampling", list(SAMPLINGS))
@torch.inference_mode()
def test_a_fence_stands_at_every_guess(name: str, sampling: str) -> None:
    model, prompt = model_of(name), prompt_of(40, seed=2)
    expected = plain(model, begin(model, prompt, SAMPLINGS[sampling], PatternFence())[0])

    for lies in (frozenset[int](), frozenset({3, 9, 10}), frozenset(range(40))):
        fence = PatternFence()
        sequence, _ = begin(model, prompt, SAMPLINGS[sampling], fence)
        speculative(model, sequence, Oracle(expected.produced, lies, 6, prompt=40))
        assert sequence.produced == expected.produced
        assert fence.count == len(sequence.produced)


def test_a_draft_goes_no_further_than_the_fence_and_takes_up_what_it_forces() -> None:
    no, yes = False, True
    assert fenced(PatternFence(), [1, 1, 1, 5, 3, 9, 9], 20) == ([1, 1], [no, no])  # the third 1 is forbidden
    assert fenced(PatternFence(4), [1, 99, 98], 20) == ([1, 11, 12], [no, yes, yes])
    assert fenced(PatternFence(4), [1, 11, 12, 1], 20) == ([1, 11, 12, 1], [no, yes, yes, no])
    assert fenced(PatternFence(4), [1, 11, 12, 1], 2) == ([1, 11], [no, yes])
    assert fenced(None, [5, 6, 7], 2) == ([5, 6], [no, no])


@torch.inference_mode()
def test_a_stop_inside_a_draft_ends_the_answer_where_it_would_have_ended() -> None:
    model = model_of("tiny-llama")
    for seed in range(40):  # a sampled answer that has the stop at a place where drafts reach beyond it
        parameters = SamplingParameters(temperature=3.0, seed=seed)
        expected = plain(model, begin(model, prompt_of(30), parameters, new_tokens=200)[0])
        if expected.ended is EndReason.STOPPED and len(expected.produced) > 4:
            break
    assert expected.ended is EndReason.STOPPED

    sequence, _ = begin(model, prompt_of(30), parameters, new_tokens=200)
    oracle = Oracle([*expected.produced, 1, 2, 3], frozenset(), 8, prompt=30)
    while sequence.ended is None:
        verify_round(model, [DraftedSequence(sequence, oracle)], 512, tell)

    assert_same_end(sequence, expected)


@torch.inference_mode()
def test_lanes_with_and_without_guesses_share_a_round() -> None:
    model = model_of("tiny-deepseek-v4")
    prompts = [prompt_of(length, seed=length) for length in (20, 33, 47)]
    expected = [plain(model, begin(model, prompt, SamplingParameters())[0]) for prompt in prompts]

    sequences = [begin(model, prompt, SamplingParameters())[0] for prompt in prompts]
    oracles = [
        None,
        Oracle(expected[1].produced, frozenset({4, 5}), 3, prompt=33),
        Oracle(expected[2].produced, length=7, prompt=47),
    ]
    while any(sequence.ended is None for sequence in sequences):
        lanes = [
            DraftedSequence(sequence, oracle)
            for sequence, oracle in zip(sequences, oracles, strict=True)
            if sequence.ended is None
        ]
        verify_round(model, lanes, 512, tell)

    for got, wanted in zip(sequences, expected, strict=True):
        assert_same_end(got, wanted)


@pytest.mark.parametrize("name", MODELS[1:])
@torch.inference_mode()
def test_the_models_own_drafter_changes_no_token_even_corrupted_or_ignorant(name: str) -> None:
    model, prompt = model_of(name), prompt_of(50, seed=3)
    expected = plain(model, begin(model, prompt, SamplingParameters(temperature=0.5, seed=1))[0])

    for corrupt in ("no", "state", "ignorant"):
        sequence, hidden = begin(model, prompt, SamplingParameters(temperature=0.5, seed=1))
        drafter = MtpDrafter(model, sequence.state, 512)  # type: ignore[arg-type]
        if corrupt != "ignorant":
            drafter.follow(0, hidden, [*prompt[1:], sequence.pending[0]])
        if corrupt == "state":
            for tensor in model.state.tensors:
                if tensor.advisory:
                    sequence.state.tensors[tensor.name].normal_()
        results = speculative(model, sequence, drafter)
        assert_same_end(sequence, expected)
        assert any(result.proposed for result in results)


@pytest.mark.parametrize("helper", ["the-same", "another", "whole-lengths-only"])
@torch.inference_mode()
def test_a_smaller_model_changes_no_token_and_the_same_model_is_always_right(helper: str) -> None:
    model, prompt = model_of("tiny-llama"), prompt_of(45, seed=4)
    other = {"the-same": model, "another": model_of("tiny-glm4-moe"), "whole-lengths-only": model_of("tiny-deepseek-v4")}[helper]
    expected = plain(model, begin(model, prompt, SamplingParameters())[0])

    sequence, _ = begin(model, prompt, SamplingParameters())
    drafter = SmallModelDrafter(other, [*prompt, *sequence.produced], len(prompt) + NEW_TOKENS, 512)
    results = speculative(model, sequence, drafter)

    assert_same_end(sequence, expected)
    if helper == "the-same":
        assert len(results) == -(-(NEW_TOKENS - 1) // 6)
        assert all(result.accepted == result.proposed for result in results)


@torch.inference_mode()
def test_lookup_accepts_much_where_an_answer_repeats_itself() -> None:
    """The sampler is made to say a fixed text twice by a bias no logit can beat: the second time is guessed."""
    model, prompt = model_of("tiny-llama"), prompt_of(20) + [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17] * 3 + [7, 8, 9]
    repeated = [10, 11, 12, 13, 14, 15, 16, 17, 7, 8, 9] * 2
    fence = ForcedLine(repeated)

    sequence, _ = begin(model, prompt, SamplingParameters(), fence, new_tokens=len(repeated))
    lookup = PromptLookup([*prompt, sequence.produced[0]])
    rounds = []
    while sequence.ended is None:
        rounds += verify_round(model, [DraftedSequence(sequence, lookup)], 512, tell)

    assert sequence.produced == repeated
    assert len(rounds) <= 5
    assert sum(result.accepted for result in rounds) >= len(repeated) - 6


@dataclass
class ForcedLine:
    """Allows one id at each position, without saying that it is forced."""

    line: list[int]
    count: int = 0

    def allowed(self) -> NDArray[np.int32]:
        mask = np.zeros(16, dtype=np.uint32)
        token = self.line[min(self.count, len(self.line) - 1)]
        mask[token // 32] = 1 << (token % 32)
        return mask.view(np.int32)

    def forced(self) -> Ids[int]:
        return []

    def advance(self, token_id: int) -> None:
        self.count += 1

    def clone(self) -> TokenFence:
        return ForcedLine(self.line, self.count)

    def rollback(self, num_tokens: int) -> None:
        self.count -= num_tokens

    def explain(self) -> str:
        return "one line"
