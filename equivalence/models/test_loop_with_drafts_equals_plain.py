"""The whole runtime with drafters against the whole runtime without: tokens, log probabilities, the states that are kept.

Each family × each drafter × how it samples × how long a proposal may be; alone and in company; from nothing, from a resident
state, from a snapshot on SSD in another loop. The drafters that know nothing are joined by a liar that knows the answer, so
that every length of acceptance occurs, and by noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.runtime import verify
from zllm_ref.runtime.draft.drafter import DrafterFactory
from zllm_ref.runtime.draft.dspark import seeded_dspark
from zllm_ref.runtime.draft.mtp import MtpFactory
from zllm_ref.runtime.draft.prompt_lookup import PromptLookupFactory
from zllm_ref.runtime.draft.small_model import SmallModelFactory
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.prefill import restore
from zllm_ref.runtime.restore import TensorCodec, restore_from_ssd
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, GenerationJob
from zllm_ref.runtime.state import SessionState, StateDeclaration
from zllm_ref.runtime.weights import seeded_checkpoint

from ..bits import assert_bits_equal
from ..test_long_lived_equals_fresh import Collector
from .families import FAMILIES, state_tensors

NUM_IDS = 8
"""Few, so that three ids in a row come again and there is something to look up."""
PROMPT_TOKENS, NEW_TOKENS = 250, 24
"""So that every kept state has at least 256 rows."""
SAMPLINGS = {
    "greedy": SamplingParameters(top_logprobs=2),
    "sampled": SamplingParameters(temperature=0.8, seed=5, top_p=0.95, top_logprobs=0),
    "penalised": SamplingParameters(temperature=0.6, seed=6, frequency_penalty=0.4, repetition_penalty=1.2, top_logprobs=0),
}
KINDS = ("prompt_lookup", "mtp", "model", "dspark", "liar", "noise")
SUBJECTS = [(family, kind) for family in FAMILIES for kind in KINDS if kind != "mtp" or family not in ("llama", "qwen3")]
THROUGHOUT = [(family, kind) for family, kind in SUBJECTS if family == "llama" or kind in ("mtp", "dspark", "liar")]
"""Those whose drafters read rows or keep something in the state, and the one that is right at times: in every setting."""


@dataclass
class Liar:
    """Knows the answers by their prompts, and lies at every `lies`-th place (0: never). `noise`: ids that may not exist."""

    answers: dict[int, list[int]]
    most_length: int
    lies: int = 0
    noise: bool = False
    name: str = "liar"
    guesses_at_once: bool = True
    feature_layers: tuple[int, ...] = ()
    state_tensors: tuple[object, ...] = ()
    digest: str = ""

    def session_bytes(self, num_tokens: int) -> int:
        return 0

    def begin(self, state: SessionState, ids: Sequence[int]) -> LyingDrafter:
        return LyingDrafter(self, len(ids), self.answers.get(hash(tuple(ids)), []))


@dataclass
class LyingDrafter:
    factory: Liar
    prompt: int
    answer: list[int]
    known: int = 0

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        assert hidden.shape[0] == len(next_ids)
        self.known = start + len(next_ids) + 1 - self.prompt

    def propose(self, limit: int) -> list[int]:
        lies = self.factory.lies
        guesses = self.answer[max(0, self.known) : max(0, self.known) + limit]
        if self.factory.noise:
            source = torch.Generator().manual_seed(self.known)
            return [int(torch.randint(-5, 3 * NUM_IDS, (), generator=source)) for _ in range(limit)]
        places = range(self.known, self.known + len(guesses))
        return [
            (guess + 1) % NUM_IDS if lies and place % lies == 0 else guess for place, guess in zip(places, guesses, strict=True)
        ]

    def chances(self) -> Sequence[float]:
        return [0.9] * self.factory.most_length

    def judge(self, proposed: int, accepted: int) -> None:
        pass


@cache
def model_of(family: str, kind: str, device: str) -> Model:
    """Fresh for each kind: a drafter may add to the declared state."""
    torch.set_num_threads(1)
    checkpoint = seeded_checkpoint(FAMILIES[family], torch.float32)
    return build_model(checkpoint, Numerics(torch.float32, 1), device, drafting=kind == "mtp")


@cache
def drafted_model(family: str, kind: str, device: str) -> tuple[Model, Callable[[int], DrafterFactory]]:
    """The model, and its drafters by how much they may propose; what they keep in the state is declared."""
    model = model_of(family, kind, device)
    match kind:
        case "prompt_lookup":
            return model, PromptLookupFactory
        case "mtp":
            return model, lambda most: MtpFactory(model, NUM_IDS, most)  # type: ignore[arg-type]
        case "model":
            small = model_of("llama" if family != "llama" else "glm4_moe", "small", device)
            return model, lambda most: SmallModelFactory(small, NUM_IDS, most)
        case "dspark":
            drafters = seeded_dspark(model, num_token_ids=NUM_IDS)  # type: ignore[arg-type]
            model.state = StateDeclaration([*model.state.tensors, *drafters.state_tensors])
            return model, lambda most: drafters
    raise AssertionError(kind)


def liar_for(
    family: str, device: str, prompts: Sequence[tuple[int, ...]], sampling: SamplingParameters, most: int, noise: bool = False
) -> DrafterFactory:
    """Knows what the plain loop says to these prompts, and lies here and there."""
    answers = {hash(prompt): plain_loop(family, sampling, prompt, device)[0].ids for prompt in prompts}
    return Liar(answers, most, 3 + most % 4, noise)  # type: ignore[return-value]


def prompt_of(length: int, seed: int) -> tuple[int, ...]:
    """Ids that repeat themselves in places, so that there is something to look up."""
    drawn = torch.randint(0, NUM_IDS, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return (*drawn[: length // 2], *drawn[: length - length // 2])


def job(prompt: Sequence[int], listener: Collector, sampling: SamplingParameters, new_tokens: int = NEW_TOKENS) -> GenerationJob:
    plans = (ChoicePlan(sampling),)
    ids = np.array(prompt, dtype=np.int32)
    return GenerationJob(ids, new_tokens, frozenset(), plans, listener)  # type: ignore[arg-type]


def resident_loop(model: Model, drafters: DrafterFactory | None) -> RuntimeLoop:
    cache = PrefixCache(model.state.layout(), 1 << 30, identity="drafts")
    # a clock that stands still: every guess with a chance is verified, whatever rounds cost here today
    return RuntimeLoop(model, cache, num_token_ids=NUM_IDS, drafters=drafters, clock=lambda: 0.0)


def ask(loop: RuntimeLoop, *prompts: Sequence[int], sampling: SamplingParameters) -> list[Collector]:
    collectors = [Collector() for _ in prompts]
    for prompt, collector in zip(prompts, collectors, strict=True):
        loop.submit(job(prompt, collector, sampling))
    loop.run_until_idle()
    loop.cache.check()
    assert [collector.failed for collector in collectors] == [None] * len(prompts)
    assert loop.cache.reserved_bytes == 0
    return collectors


@cache
def plain_loop(family: str, sampling: SamplingParameters, prompt: tuple[int, ...], device: str) -> tuple[Collector, RuntimeLoop]:
    """What the loop without drafters says from nothing, alone; and the loop, which keeps the end state."""
    loop = resident_loop(model_of(family, "none", device), None)
    (collector,) = ask(loop, prompt, sampling=sampling)
    return collector, loop


def kept_state(loop: RuntimeLoop, ids: Sequence[int]) -> SessionState:
    """What the cache kept of these ids, in a session of its own."""
    asked = np.array([*ids, 1], dtype=np.int32)
    needed = loop.model.state.session_bytes(len(asked))
    admission = loop.cache.admit("", asked, reserve_bytes=needed, cache_id=None)
    assert admission is not None
    assert admission.hit is not None
    state = SessionState(loop.model.state, len(asked), loop.model.device)
    if admission.restore is not None:
        assert isinstance(loop.cache, TieredCache)
        restore_from_ssd(state, loop.cache, admission)
    else:
        restore(state, admission.hit)
    loop.cache.release(admission)
    return state


def assert_same_answer(got: Collector, expected: Collector) -> None:
    assert got.ids == expected.ids
    assert got.logprobs == expected.logprobs


def assert_same_kept(got: SessionState, expected: SessionState) -> None:
    """Every bit of everything that could change a token, over at least 256 rows."""
    assert got.length == expected.length >= 256
    advisory = {tensor.name for tensor in got.declaration.tensors if tensor.advisory}
    theirs = state_tensors(expected)
    for name, tensor in state_tensors(got).items():
        if name not in advisory:
            assert_bits_equal(name, tensor, theirs[name])


def drafters_of(
    subject: tuple[str, str], device: str, most: int, prompts: Sequence[tuple[int, ...]], sampling: SamplingParameters
) -> tuple[Model, DrafterFactory]:
    family, kind = subject
    if kind in ("liar", "noise"):
        return model_of(family, "none", device), liar_for(family, device, prompts, sampling, most, kind == "noise")
    model, make = drafted_model(family, kind, device)
    return model, make(most)


@pytest.mark.parametrize(
    ("subject", "sampling"),
    [*((pair, "greedy") for pair in SUBJECTS), *((pair, how) for pair in THROUGHOUT for how in ("sampled", "penalised"))],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_answers_and_kept_states_are_those_of_the_plain_loop(subject: tuple[str, str], sampling: str, device: str) -> None:
    how = SAMPLINGS[sampling]
    prompts = [prompt_of(PROMPT_TOKENS, seed=1), prompt_of(33, seed=3)]
    most = {"greedy": 8, "sampled": 3, "penalised": 2}[sampling]
    model, drafters = drafters_of(subject, device, most, prompts, how)
    expected = [plain_loop(subject[0], how, prompt, device) for prompt in prompts]

    loop = resident_loop(model, drafters)
    got = ask(loop, *prompts, sampling=how)

    for mine, (theirs, _) in zip(got, expected, strict=True):
        assert_same_answer(mine, theirs)
    ids = [*prompts[0], *got[0].ids[:-1]]
    assert_same_kept(kept_state(loop, ids), kept_state(expected[0][1], ids))
    if subject[1] != "noise":
        assert loop.draft_counts.drafted > 0
    if subject[1] == "liar":
        assert 0 < loop.draft_counts.accepted < loop.draft_counts.drafted


@contextmanager
def ssd_loop(model: Model, drafters: DrafterFactory | None, root: Path) -> Iterator[RuntimeLoop]:
    with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(1) as reader:
        cache = TieredCache(
            model.state.layout(),
            1 << 30,
            identity="drafts",
            store=SnapshotStore.open(root, 1 << 40, identity="drafts"),
            codec=TensorCodec(model.state),
            writer=writer,
            reader=reader,
            num_stages=2,
        )
        loop = RuntimeLoop(model, cache, num_token_ids=NUM_IDS, drafters=drafters, clock=lambda: 0.0)
        yield loop
        loop._write_dirty_states()
        cache.check()
        cache.store.close()


@pytest.mark.parametrize("tier", ["resident", "ssd"])
@pytest.mark.parametrize("subject", THROUGHOUT, ids="-".join)
def test_a_next_turn_says_the_same_after_a_restore(subject: tuple[str, str], tier: str, device: str, tmp_path: Path) -> None:
    how = SAMPLINGS["sampled"]
    first = prompt_of(PROMPT_TOKENS, seed=4)
    answer, _ = plain_loop(subject[0], how, first, device)
    second = (*first, *answer.ids[:-1], *prompt_of(40, seed=5))
    model, drafters = drafters_of(subject, device, 5, [first, second], how)

    if tier == "resident":
        loop = resident_loop(model, drafters)
        ask(loop, first, sampling=how)
        (got,) = ask(loop, second, sampling=how)
        kept = kept_state(loop, [*second, *got.ids[:-1]])
    else:
        with ssd_loop(model, drafters, tmp_path) as loop:
            ask(loop, first, sampling=how)
        with ssd_loop(model, drafters, tmp_path) as loop:
            (got,) = ask(loop, second, sampling=how)
            kept = kept_state(loop, [*second, *got.ids[:-1]])

    assert got.report is not None
    assert (got.report.cache_tier, got.report.cached_tokens) == (tier, PROMPT_TOKENS + NEW_TOKENS - 1)
    expected, cold = plain_loop(subject[0], how, second, device)
    assert_same_answer(got, expected)
    assert_same_kept(kept, kept_state(cold, [*second, *got.ids[:-1]]))


@pytest.mark.parametrize(("family", "kind"), [pair for pair in SUBJECTS if pair[1] in ("mtp", "dspark")])
def test_what_a_drafter_keeps_in_the_state_comes_back_with_it_and_is_what_a_cold_one_has(
    family: str, kind: str, device: str
) -> None:
    """So it guesses after a restore what it would have guessed without one."""
    how = SAMPLINGS["greedy"]
    model, make = drafted_model(family, kind, device)
    first = prompt_of(PROMPT_TOKENS, seed=6)
    warm, cold = resident_loop(model, make(3)), resident_loop(model, make(3))
    (answer,) = ask(warm, first, sampling=how)
    second = [*first, *answer.ids, *prompt_of(40, seed=7)]
    (got,) = ask(warm, second, sampling=how)
    assert got.report is not None
    assert got.report.cached_tokens == PROMPT_TOKENS + NEW_TOKENS - 1

    ask(cold, second, sampling=how)

    ids = [*second, *got.ids[:-1]]
    mine, theirs = kept_state(warm, ids), kept_state(cold, ids)
    names = [tensor.name for tensor in model.state.tensors if tensor.advisory]
    assert names
    for name in names:
        assert_bits_equal(name, state_tensors(mine)[name], state_tensors(theirs)[name])


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_comparison_sees_a_rejected_row_that_was_not_forgotten(
    family: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    how = SAMPLINGS["greedy"]
    prompt = prompt_of(PROMPT_TOKENS, seed=1)
    drafters = liar_for(family, device, [prompt], how, 4)
    expected, _ = plain_loop(family, how, prompt, device)

    monkeypatch.setattr(verify, "_forget", lambda model, fed, results: None)
    loop = resident_loop(model_of(family, "none", device), drafters)
    collector = Collector()
    loop.submit(job(prompt, collector, how))
    loop.run_until_idle()

    assert collector.failed is not None or (collector.ids, collector.logprobs) != (expected.ids, expected.logprobs)


def test_the_comparison_sees_a_guess_that_was_believed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other negative control: whatever is guessed is taken."""
    how = SAMPLINGS["greedy"]
    prompt = prompt_of(PROMPT_TOKENS, seed=1)
    drafters = liar_for("llama", device, [prompt], how, 4)
    expected, _ = plain_loop("llama", how, prompt, device)

    def believe(sequence: object, token: SampledToken) -> list[SampledToken]:
        lie = (token.token_id + 1) % NUM_IDS
        return real(sequence, SampledToken(lie))  # type: ignore[arg-type]

    real = verify.accept
    monkeypatch.setattr(verify, "accept", believe)
    monkeypatch.setattr(verify, "takes_the_largest", lambda sequence: True)
    monkeypatch.setattr(verify, "may_take_the_largest", lambda sequence: True)
    (got,) = ask(resident_loop(model_of("llama", "none", device), drafters), prompt, sampling=how)

    assert got.ids != expected.ids
