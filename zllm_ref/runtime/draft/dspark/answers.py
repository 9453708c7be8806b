"""What a drafter learns from: answers of its own target, with the rows of the chosen layers and what else was likely.

Prompts come as ids; answers are decoded many at a time, and everything is taken on the way: nothing is computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.sampler import Sampler, SamplingParameters
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step

LIKELY = 8
"""Ids that are kept of a distribution: the largest ones."""


@dataclass(frozen=True)
class Answer:
    """One prompt and its answer. `rows` = ids - 1: nothing was computed for the last id."""

    ids: Tensor
    """[ids] int64."""
    prompt_length: int
    features: Tensor
    """[rows, layers × width] in the target's dtype: row i belongs to id i."""
    likely_ids: Tensor
    """[answer rows, LIKELY] int64: row j is what the target found likely behind id prompt_length + j."""
    likely_shares: Tensor
    """[answer rows, LIKELY]: their probabilities, at temperature 1."""


@dataclass
class _Lane:
    """An answer while it is made."""

    number: int
    ids: list[int]
    prompt_length: int
    state: SessionState
    sampler: Sampler
    features: list[Tensor] = field(default_factory=list)
    likely: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class AnswerRecorder:
    """Decodes prompts on one model."""

    def __init__(self, model: Model, num_token_ids: int, stop_ids: frozenset[int], feature_layers: tuple[int, ...]) -> None:
        self._model = model
        self._num_token_ids = num_token_ids
        self._stop_ids = stop_ids
        self._feature_layers = feature_layers

    @torch.inference_mode()
    def record(
        self,
        prompts: Sequence[Sequence[int]],
        samplings: Sequence[SamplingParameters],
        new_tokens: int,
        num_lanes: int = 32,
        report: Callable[[int], None] = lambda answers: None,
    ) -> list[Answer]:
        """The answers in the order of the prompts. `report` hears how many are done."""
        waiting = list(reversed([*enumerate(zip(prompts, samplings, strict=True))]))
        done: dict[int, Answer] = {}
        lanes: list[_Lane] = []
        while waiting or lanes:
            while waiting and len(lanes) < num_lanes:
                number, (prompt, sampling) = waiting.pop()
                state = SessionState(self._model.state, len(prompt) + new_tokens, self._model.device)
                lane = _Lane(number, list(prompt), len(prompt), state, Sampler(sampling, prompt))
                self._feed([lane], [lane.ids])
                lanes.append(lane)
            lanes = self._sift(lanes, done, new_tokens)
            if lanes:
                self._feed(lanes, [lane.ids[-1:] for lane in lanes])
                lanes = self._sift(lanes, done, new_tokens)
            report(len(done))
        return [done[number] for number in range(len(prompts))]

    def _feed(self, lanes: list[_Lane], new_ids: Sequence[Sequence[int]]) -> None:
        """One step; every lane gains an id."""
        model = self._model
        fed = [(lane.state, ids) for lane, ids in zip(lanes, new_ids, strict=True)]
        step = build_step(fed, model.numerics, model.device, self._feature_layers)
        hidden = model.forward(step)
        commit_step(step)
        assert step.features is not None
        features = step.features.side_by_side()
        last = torch.tensor([piece.row + piece.num_rows - 1 for piece in step.lanes], device=model.device)
        logits = model.logits(hidden[last])[:, : self._num_token_ids]
        values, ids = logits.topk(LIKELY, -1)
        shares = torch.exp(values - logits.logsumexp(-1, keepdim=True))
        for index, (lane, piece) in enumerate(zip(lanes, step.lanes, strict=True)):
            lane.features.append(features[piece.row : piece.row + piece.num_rows].clone())
            if len(lane.ids) > lane.prompt_length:
                lane.likely.append((ids[index].clone(), shares[index].clone()))
            token = lane.sampler.sample(logits[index], len(lane.ids), None).token_id
            lane.sampler.accept(token)
            lane.ids.append(token)

    def _sift(self, lanes: list[_Lane], done: dict[int, Answer], new_tokens: int) -> list[_Lane]:
        """The lanes that go on; those that do not become answers."""
        going = []
        for lane in lanes:
            if lane.ids[-1] not in self._stop_ids and len(lane.ids) - lane.prompt_length < new_tokens:
                going.append(lane)
                continue
            ids, shares = zip(*lane.likely, strict=True) if lane.likely else ((), ())
            done[lane.number] = Answer(
                torch.tensor(lane.ids),
                lane.prompt_length,
                torch.cat(lane.features),
                torch.stack(ids) if ids else torch.empty((0, LIKELY), dtype=torch.int64),
                torch.stack(shares) if shares else torch.empty((0, LIKELY)),
            )
        return going


def frequent_ids(answers: Sequence[Answer], num_ids: int, num_token_ids: int) -> list[int]:
    """The ids worth guessing, ascending: those that answers have most often, then those with the smallest numbers.

    A byte-pair vocabulary gives small numbers to what was merged early, which is what is frequent.
    """
    counted = Counter(int(token) for answer in answers for token in answer.ids[answer.prompt_length :].tolist())
    by_count = sorted(counted, key=lambda token: (-counted[token], token))
    filled = [*by_count, *(token for token in range(num_token_ids) if token not in counted)]
    return sorted(filled[: min(num_ids, num_token_ids)])
