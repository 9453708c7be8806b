"""A drafter put to the test: prompts answered in verified rounds, every guess and chance counted, every token compared.

All that is proposed is verified, so that each place of a block is seen; the loop's planner would cut. The same prompts may
be answered without a drafter first: any token that differs is a fault, not a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from zllm_ref.runtime.decode import decode_round, first_tokens
from zllm_ref.runtime.draft.drafter import Drafter, DrafterFactory
from zllm_ref.runtime.draft.figures import DraftFigures
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.prefill import run_chunk
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob, PromptReport, Timings
from zllm_ref.runtime.sequence import Sequence as Running
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.verify import DraftedSequence, verify_round


@dataclass(frozen=True)
class EvaluationPlan:
    """How the prompts are answered."""

    new_tokens: int = 96
    num_lanes: int = 16
    sampling: SamplingParameters = field(default_factory=SamplingParameters)


@dataclass
class _Lane:
    number: int
    sequence: Running
    drafter: Drafter | None


class _Deaf:
    """A listener that hears nothing: the evaluation reads the sequences themselves."""

    def on_started(self, report: PromptReport) -> None: ...

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> bool:
        return False

    def on_ended(self, choice: int, reason: EndReason, stop_token: int | None) -> None: ...

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None: ...

    def on_failed(self, message: str) -> None: ...


class DraftEvaluation:
    """Prompts on one model, whose state has the tensors of the drafters that are tested."""

    def __init__(self, model: Model, num_token_ids: int, stop_ids: frozenset[int], plan: EvaluationPlan) -> None:
        self._model = model
        self._num_token_ids = num_token_ids
        self._stop_ids = stop_ids
        self._plan = plan

    @torch.inference_mode()
    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        factory: DrafterFactory | None = None,
        report: Callable[[int], None] = lambda answers: None,
    ) -> tuple[list[list[int]], DraftFigures]:
        """The ids of every answer, and the figures (empty without a `factory`). `report` hears how many are done."""
        figures = DraftFigures()
        waiting = list(reversed([*enumerate(prompts)]))
        done: dict[int, list[int]] = {}
        lanes: list[_Lane] = []
        while waiting or lanes:
            while waiting and len(lanes) < self._plan.num_lanes:
                lanes.append(self._begin(*waiting.pop(), factory))
            running = [lane for lane in lanes if lane.sequence.ended is None]
            if factory is None:
                for lane, tokens in zip(running, self._plain_round(running), strict=True):
                    self._tell(lane.sequence, tokens)
            else:
                self._drafted_round(running, factory, figures)
            for lane in [lane for lane in lanes if lane.sequence.ended is not None]:
                lanes.remove(lane)
                done[lane.number] = lane.sequence.produced
            report(len(done))
        return [done[number] for number in range(len(prompts))], figures

    def _begin(self, number: int, prompt: Sequence[int], factory: DrafterFactory | None) -> _Lane:
        model, plan = self._model, self._plan
        ids = np.array(prompt, dtype=np.int32)
        job = GenerationJob(ids, plan.new_tokens, self._stop_ids, (ChoicePlan(plan.sampling),), _Deaf())
        state = SessionState(model.state, len(prompt) + plan.new_tokens, model.device)
        rows = run_chunk(model, state, ids, () if factory is None else factory.feature_layers)
        (sequence,) = first_tokens(model, job, state, rows.last, self._num_token_ids)
        self._tell(sequence, sequence.first)
        drafter = None
        if factory is not None:
            drafter = factory.begin(state, [*prompt, *sequence.produced])
            drafter.follow(0, rows.followed, [*prompt[1:], sequence.produced[0]])
        return _Lane(number, sequence, drafter)

    def _plain_round(self, lanes: Sequence[_Lane]) -> list[list[SampledToken]]:
        return decode_round(self._model, [lane.sequence for lane in lanes], self._num_token_ids) if lanes else []

    def _drafted_round(self, lanes: Sequence[_Lane], factory: DrafterFactory, figures: DraftFigures) -> None:
        if not lanes:
            return
        before = [len(lane.sequence.produced) for lane in lanes]
        drafted = [DraftedSequence(lane.sequence, lane.drafter) for lane in lanes]
        # `chances` are those of the proposal that this round looked at: nobody proposes again before they are read
        results = verify_round(self._model, drafted, self._num_token_ids, self._tell, feature_layers=factory.feature_layers)
        for lane, result, produced in zip(lanes, results, before, strict=True):
            assert lane.drafter is not None
            gained = len(lane.sequence.produced) - produced
            chances = lane.drafter.chances() if result.proposed else ()
            figures.add(result.proposed, result.right, gained, chances)

    def _tell(self, sequence: Running, tokens: Sequence[SampledToken]) -> None:
        """The end of an answer, by the rules of the loop."""
        if any(token.token_id in self._stop_ids for token in tokens):
            sequence.ended = EndReason.STOP_TOKEN
        elif len(sequence.produced) >= self._plan.new_tokens:
            sequence.ended = EndReason.MAX_TOKENS
