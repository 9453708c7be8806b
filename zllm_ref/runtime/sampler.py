"""From one row of logits to one token: a function of the row, the parameters, and (seed, position). Nothing else.

    raw logits ─ bias, penalties ─ fence mask ─ temperature ─ top_k ─ min_p ─ top_p ─ + noise(seed, position) ─ argmax

Noise instead of a running random state: the token at a position is the same whether the row came from prefill, a decode
round, a batch, or the verification of a draft. Every row is worked on alone, in one shape, so neighbours cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zllm_ref.runtime.ports import TokenMask

_MASK_64 = (1 << 64) - 1
_FIRST_CANDIDATES = 1024
_MASS_MARGIN = 1e-3
"""Far more than sums of probabilities in another order can differ by."""


@dataclass(frozen=True)
class SamplingParameters:
    """How a sequence chooses. `top_logprobs` None: no log probabilities are computed."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None

    @property
    def is_plain_greedy(self) -> bool:
        """True where the token is the largest raw logit, so that a round of such lanes is one argmax."""
        return self.temperature == 0.0 and not self.changes_logits and self.top_logprobs is None

    @property
    def changes_logits(self) -> bool:
        return bool(self.logit_bias or self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)


@dataclass(frozen=True)
class SampledToken:
    """A token that entered a sequence. `logprob` and `top` (id, logprob) are of the model's own distribution."""

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    forced: bool = False
    """The fence left no choice; no row was computed for it."""
    drafted: bool = False
    """A drafter had guessed it, and the model sampled the same: its row was there already."""


class Sampler:
    """Chooses the tokens of one sequence. Remembers what was said, for the penalties; `rollback` forgets."""

    def __init__(self, parameters: SamplingParameters, prompt_ids: Sequence[int]) -> None:
        self.parameters = parameters
        self._prompt = sorted(set(prompt_ids)) if parameters.repetition_penalty != 1.0 else []
        self._produced: list[int] = []

    def accept(self, token_id: int) -> None:
        """`token_id` entered the sequence."""
        self._produced.append(token_id)

    def rollback(self, num_tokens: int) -> None:
        del self._produced[len(self._produced) - num_tokens :]

    def sample(self, logits: Tensor, position: int, mask: TokenMask | None) -> SampledToken:
        """The token at `position` from its row of float32 logits [vocab]. Does not change the sampler: `accept` does."""
        parameters = self.parameters
        row = self._penalised(logits) if parameters.changes_logits else logits
        if mask is not None:
            row = row.masked_fill(~unpack_mask(mask, row.shape[0]).to(row.device), float("-inf"))
        if parameters.temperature == 0.0:
            token_id = int(row.argmax())
        else:
            token_id = _draw(row / parameters.temperature, parameters, position)
        if parameters.top_logprobs is None:
            return SampledToken(token_id)
        return _with_logprobs(token_id, logits, parameters.top_logprobs)

    def _penalised(self, logits: Tensor) -> Tensor:
        parameters = self.parameters
        row = logits.clone()
        for token_id, bias in parameters.logit_bias:
            row[token_id] += bias
        if parameters.repetition_penalty != 1.0:
            seen = torch.tensor(sorted({*self._prompt, *self._produced}), dtype=torch.int64, device=row.device)
            values = row[seen]
            penalty = parameters.repetition_penalty
            row[seen] = torch.where(values > 0, values / penalty, values * penalty)
        if self._produced and (parameters.presence_penalty or parameters.frequency_penalty):
            ids, counts = np.unique(np.array(self._produced, dtype=np.int64), return_counts=True)
            penalties = parameters.presence_penalty + parameters.frequency_penalty * counts
            row[torch.from_numpy(ids)] -= torch.from_numpy(penalties).to(row.dtype).to(row.device)
        return row


def unpack_mask(mask: TokenMask, vocab_size: int) -> Tensor:
    """A bitmask as booleans [vocab]."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=vocab_size)
    return torch.from_numpy(bits.view(np.bool_))


def noise(seed: int, position: int, size: int) -> Tensor:
    """Exponential noise [size] float32: a function of its arguments alone (always made on the CPU)."""
    generator = torch.Generator()
    generator.manual_seed(_mix(seed, position))
    return torch.empty(size, dtype=torch.float32).exponential_(generator=generator)


def choice_seed(seed: int, choice: int) -> int:
    """The seed of one of several choices: the first keeps the request's own."""
    return seed if choice == 0 else _mix(seed, -choice)


def _draw(row: Tensor, parameters: SamplingParameters, position: int) -> int:
    """argmax(p / exponential noise) draws from p; what top_k, min_p and top_p cut has p = 0."""
    kept = _kept(row, parameters)
    values = row if kept is None else row[kept]
    draws = noise(parameters.seed, position, row.shape[0]).to(row.device)
    if kept is not None:
        draws = draws[kept]
    probabilities = torch.exp(values - values.max())
    index = int((probabilities / draws).argmax())
    return index if kept is None else int(kept[index])


def _kept(row: Tensor, parameters: SamplingParameters) -> Tensor | None:
    """Ids that survive top_k, min_p, top_p, best first, ties by id; None: all."""
    vocab = row.shape[0]
    limit = parameters.top_k if 0 < parameters.top_k < vocab else vocab
    if limit == vocab and parameters.min_p == 0.0 and parameters.top_p >= 1.0:
        return None
    probabilities = torch.softmax(row, -1)
    ordered = _best_first(row, probabilities, parameters, limit)
    sorted_probabilities = probabilities[ordered]
    keep = ordered.shape[0]
    if parameters.min_p > 0.0:
        keep = int((sorted_probabilities >= parameters.min_p * sorted_probabilities[0]).sum())
    if parameters.top_p < 1.0:
        inside = sorted_probabilities[:keep]
        if limit < vocab or parameters.min_p > 0.0:
            inside = inside / inside.sum()  # each cut counts what the cuts before it left as the whole
        before = torch.cumsum(inside, 0)[:-1]  # the mass before the second token, the third …
        keep = min(keep, 1 + int((before < parameters.top_p).sum()))
    return ordered[: max(1, keep)]


def _best_first(row: Tensor, probabilities: Tensor, parameters: SamplingParameters, limit: int) -> Tensor:
    """Ids by falling logit, ties by rising id. Sorts only the head of the distribution where that is provably enough."""
    vocab = row.shape[0]
    for size in (min(_FIRST_CANDIDATES, vocab), vocab):
        threshold = row.topk(size).values[-1]
        candidates = (row >= threshold).nonzero()[:, 0]  # every tie of the threshold is in
        enough_count = candidates.shape[0] >= limit
        mass = float(probabilities[candidates].sum()) if limit == vocab else 0.0
        enough_mass = parameters.top_p < 1.0 and mass > parameters.top_p + _MASS_MARGIN
        if size == vocab or enough_count or (enough_mass and parameters.min_p == 0.0):
            order = row[candidates].sort(descending=True, stable=True).indices
            return candidates[order][:limit]
    raise AssertionError("the last size is the vocabulary")


def _with_logprobs(token_id: int, logits: Tensor, top: int) -> SampledToken:
    logprobs = torch.log_softmax(logits, -1)
    best = logprobs.topk(top) if top else None
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True) if best is not None else ()
    return SampledToken(token_id, float(logprobs[token_id]), tuple(pairs))


def _mix(seed: int, position: int) -> int:
    """A 63-bit number from two: the finaliser of SplitMix64, so that neighbouring positions share nothing."""
    z = (seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & _MASK_64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return (z ^ (z >> 31)) >> 1
