"""A model whose next token is a hash of every id before it, so that one wrong row anywhere changes every token after it.

It reads the ids back from its state (restored rows count), needs no weights, and can be told to fail. Beside it: a listener
that writes down what it hears, a fence that dictates, and workers for file work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.ports import TokenFence
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob, PromptReport, Timings
from zllm_ref.runtime.state import StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step

VOCAB = 50
PROMPT = [3, 1, 4, 1, 5]
_MODULUS = 9973


def next_hash(before: int, token: int) -> int:
    return (before * 31 + token + 7) % _MODULUS


def continuation(prompt: Sequence[int], length: int) -> list[int]:
    """The plain way: what the model says greedily after `prompt`."""
    value = 0
    for token in prompt:
        value = next_hash(value, token)
    said = []
    for _ in range(length):
        said.append(value % VOCAB)
        value = next_hash(value, said[-1])
    return said


class HashModel:
    """State: `ids`, growing; with `has_ring` also the hash itself in a fixed tensor, which makes the state uncuttable."""

    architecture = "hash"
    vocab_size = VOCAB

    def __init__(self, *, context_length: int = 4096, has_ring: bool = False) -> None:
        self.numerics = Numerics(torch.float32)
        self.device = torch.device("cpu")
        self.context_length = context_length
        self.has_ring = has_ring
        tensors = [StateTensor("ids", 1, (1,), torch.int64)]
        if has_ring:
            tensors.append(StateTensor("ring", 1, (1,), torch.int64, grows=False))
        self.state = StateDeclaration(tensors)
        self.fails_when: Callable[[Step], bool] = lambda step: False
        self.steps: list[tuple[int, ...]] = []
        """Rows of every lane, a step each."""

    def forward(self, step: Step) -> Tensor:
        step.wait_for(0)
        self.steps.append(tuple(lane.num_rows for lane in step.lanes))
        hidden = torch.zeros(step.ids.shape[0], 1)
        for lane in step.lanes:
            ids = step.ids[lane.row : lane.row + lane.num_rows]
            lane.state.tensors["ids"][0, lane.start : lane.start + lane.num_rows, 0] = ids
            value = self._hash_before(lane.state.tensors, lane.start)
            for row, token in enumerate(ids.tolist()):
                value = next_hash(value, token)
                hidden[lane.row + row, 0] = value
            if self.has_ring:
                lane.state.tensors["ring"][0, 0] = value
        if self.fails_when(step):
            raise RuntimeError("planted fault")
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        rows = torch.zeros(hidden.shape[0], VOCAB)
        rows[torch.arange(hidden.shape[0]), hidden[:, 0].long() % VOCAB] = 9.0
        return rows

    def _hash_before(self, tensors: dict[str, Tensor], start: int) -> int:
        if self.has_ring:
            return int(tensors["ring"][0, 0])
        value = 0
        for token in tensors["ids"][0, :start, 0].tolist():
            value = next_hash(value, token)
        return value


@dataclass
class Heard:
    """Writes down what it hears, in the order of the contract: started, tokens, ended, closed or failed."""

    stop_at: int | None = None
    """Says stop when a choice has so many tokens."""
    raises_at: str | None = None
    report: PromptReport | None = None
    tokens: dict[int, list[SampledToken]] = field(default_factory=dict)
    ended: dict[int, tuple[EndReason, int | None]] = field(default_factory=dict)
    kept: str | None = None
    closed: bool = False
    failed: list[str] = field(default_factory=list)
    on_token: Callable[[], None] = lambda: None

    def on_started(self, report: PromptReport) -> None:
        self._may_raise("started")
        assert self.report is None
        assert not self.failed
        self.report = report

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> bool:
        self._may_raise("tokens")
        assert self.report is not None
        assert choice not in self.ended
        assert not self.failed
        self.tokens.setdefault(choice, []).extend(tokens)
        self.on_token()
        return self.stop_at is not None and len(self.tokens[choice]) >= self.stop_at

    def on_ended(self, choice: int, reason: EndReason, stop_token: int | None) -> None:
        self._may_raise("ended")
        assert choice not in self.ended
        self.ended[choice] = (reason, stop_token)

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        self._may_raise("closed")
        assert not self.closed
        assert not self.failed
        self.closed, self.kept = True, kept_cache_id

    def on_failed(self, message: str) -> None:
        self.failed.append(message)
        self._may_raise("failed")

    def ids(self, choice: int = 0) -> list[int]:
        return [token.token_id for token in self.tokens.get(choice, [])]

    @property
    def reason(self) -> EndReason | None:
        return self.ended[0][0] if 0 in self.ended else None

    def _may_raise(self, place: str) -> None:
        if self.raises_at in (place, "everywhere"):
            raise RuntimeError(f"listener at {place}")


@dataclass
class ForcingFence:
    """After `trigger` the ids `forced_ids` must follow; `forbidden` never come."""

    trigger: int
    forced_ids: tuple[int, ...]
    forbidden: frozenset[int] = frozenset()
    advanced: list[int] = field(default_factory=list)

    def allowed(self) -> NDArray[np.int32] | None:
        if not self.forbidden:
            return None
        bits = np.array([token not in self.forbidden for token in range(64)], dtype=np.bool_)
        return np.packbits(bits, bitorder="little").view(np.int32)

    def forced(self) -> Sequence[int]:
        return self.forced_ids if self.advanced and self.advanced[-1] == self.trigger else ()

    def advance(self, token_id: int) -> None:
        self.advanced.append(token_id)

    def clone(self) -> TokenFence:
        return ForcingFence(self.trigger, self.forced_ids, self.forbidden, list(self.advanced))

    def rollback(self, num_tokens: int) -> None:
        del self.advanced[len(self.advanced) - num_tokens :]

    def explain(self) -> str:
        return "forcing"


class AtOnce:
    """A worker that does the work before `submit` returns."""

    def submit(self, work: Callable[[], None], /) -> object:
        work()
        return None


class Later:
    """A worker that begins when it is told to."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None], /) -> object:
        self.work.append(work)
        return None

    def run_all(self) -> None:
        while self.work:
            self.work.pop(0)()


def job(
    prompt: Sequence[int],
    max_new_tokens: int = 5,
    *,
    listener: Heard | None = None,
    stop_ids: Sequence[int] = (),
    num_choices: int = 1,
    plans: tuple[ChoicePlan, ...] = (),
    **others: object,
) -> GenerationJob:
    return GenerationJob(
        prompt_ids=np.array(prompt, dtype=np.int32),
        max_new_tokens=max_new_tokens,
        stop_ids=frozenset(stop_ids),
        choices=plans or (ChoicePlan(SamplingParameters()),) * num_choices,
        listener=listener or Heard(),
        **others,  # type: ignore[arg-type]
    )


def new_loop(model: HashModel | None = None, *, sessions: int = 1000, **options: object) -> RuntimeLoop:
    """A loop on a cache whose budget is so many smallest sessions.

    Time stands still, but for who brings a clock: chunks and guesses follow from measured seconds, and no test is about
    those of the machine that it runs on.
    """
    model = model or HashModel()
    options.setdefault("clock", lambda: 0.0)
    cache = PrefixCache(model.state.layout(), sessions * model.state.session_bytes(1), identity="hash")
    return RuntimeLoop(model, cache, **options)  # type: ignore[arg-type]


def assert_idle(loop: RuntimeLoop) -> None:
    """Nobody runs, so nothing is reserved or pinned, and the books are right."""
    loop.cache.check()
    assert loop.cache.reserved_bytes == 0
    assert loop.cache.pinned_bytes == 0


def run(loop: RuntimeLoop, prompt: Sequence[int] = PROMPT, max_new_tokens: int = 5, **options: object) -> Heard:
    """One job from beginning to end."""
    heard = Heard()
    loop.submit(job(prompt, max_new_tokens, listener=heard, **options))  # type: ignore[arg-type]
    loop.run_until_idle()
    return heard


def step(loop: RuntimeLoop, times: int = 1) -> None:
    with torch.inference_mode():
        for _ in range(times):
            loop.step()
