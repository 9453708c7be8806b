"""The phases of one fenced answer.

    OPENING ──▶ REASONING ──close──▶ TEXT ──trigger──▶ REGION ──stop id──▶ END
       │                              ▲ │                ▲
       └── anything but reasoning ────┘ └── stop id ──▶ END
                                                         │
    answers without free text (required, named, JSON): ──┘ straight into the REGION, before or after the reasoning

In OPENING, REASONING and TEXT no grammar runs: `FreeText` waits for one thing. In REGION `Region` decides every token.
States are immutable and know their predecessor, so a clone is a reference and a rollback a walk back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from zllm_ref.fence.compile import CompiledRegion
from zllm_ref.fence.free_text import FreeText
from zllm_ref.fence.grammar import Marker, Node
from zllm_ref.fence.mask import TokenMask, count_allowed, mask_of
from zllm_ref.fence.region import RegionStep
from zllm_ref.tokenizer import Vocabulary

_FREE_SHARE = 8
"""Where more than one token in eight is allowed, a value is being written."""


class Phase(StrEnum):
    OPENING = "opening"
    """Nothing was said yet, and the model may still open its reasoning."""
    REASONING = "reasoning"
    TEXT = "text"
    REGION = "region"
    END = "end"


_FREE = frozenset((Phase.TEXT, Phase.REASONING))


@dataclass(frozen=True, slots=True)
class Opening:
    """How the model itself opens its reasoning: exactly `text`, then the id `marker_id`."""

    text: bytes
    marker: Marker
    marker_id: int


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """What the machine runs on; made once per compiled request, shared by all its lanes.

    `reasoning`  free text until the reasoning closes; None: the answer has no reasoning
    `text`       free text until the trigger; None: after the reasoning comes the region at once
    `region`     what follows the trigger, or (without `text`) the reasoning
    `first_region`  as `region`, where the answer begins with it; it may hold the opening of a reasoning
    """

    vocabulary: Vocabulary
    stop_ids: tuple[int, ...]
    starts_in_reasoning: bool
    reasoning: FreeText | None = None
    opening: Opening | None = None
    text: FreeText | None = None
    region: CompiledRegion | None = None
    first_region: CompiledRegion | None = None


class PhaseState:
    """One point of an answer. `scan` belongs to free text, `step` to a region."""

    __slots__ = ("phase", "previous", "scan", "step")

    def __init__(self, previous: PhaseState | None, phase: Phase, scan: int = 0, step: RegionStep | None = None) -> None:
        self.previous = previous
        self.phase = phase
        self.scan = scan
        self.step = step


class PhaseMachine:
    """Walks the phases of one answer. Speaks the runtime's `TokenFence`."""

    def __init__(self, plan: PhasePlan) -> None:
        self._plan = plan
        self._state = self._begin()
        self._end_mask = mask_of(plan.stop_ids, plan.vocabulary.size)

    @property
    def phase(self) -> Phase:
        return self._state.phase

    @property
    def plan(self) -> PhasePlan:
        return self._plan

    def allowed(self) -> TokenMask | None:
        state = self._state
        match state.phase:
            case Phase.TEXT:
                assert self._plan.text is not None
                return self._plan.text.mask(state.scan)
            case Phase.REGION:
                assert state.step is not None
                return state.step.region.mask(state.step)
            case Phase.REASONING:
                assert self._plan.reasoning is not None
                return self._plan.reasoning.mask(state.scan)
            case Phase.OPENING:
                return self._opening_mask(state)
            case Phase.END:
                return self._end_mask

    def free_text(self) -> FreeText | None:
        """The free text that is being written, where nothing of a trigger stands yet: calm tokens leave that so."""
        state = self._state
        if state.scan or state.phase not in _FREE:
            return None
        return self._plan.text if state.phase is Phase.TEXT else self._plan.reasoning

    def forced(self) -> tuple[int, ...]:
        state = self._state
        if state.phase is not Phase.REGION:
            return ()
        assert state.step is not None
        return state.step.region.forced(state.step)

    def advance(self, token_id: int) -> None:
        following = self._after(self._state, token_id)
        if following is None:
            spelled = self._plan.vocabulary.token_bytes(token_id)
            raise ValueError(f"fence, {self.explain()}: got token {token_id} {spelled!r}, which is not allowed here")
        self._state = following

    def legal_prefix(self, token_ids: Sequence[int]) -> int:
        """How many of the ids may come from here, one after the other. Nothing moves."""
        state: PhaseState | None = self._state
        for count, token_id in enumerate(token_ids):
            state = self._after(state, token_id) if state is not None else None
            if state is None:
                return count
        return len(token_ids)

    def region_path(self) -> tuple[Node, list[int]] | None:
        """In a region: its grammar, and the ids that were read of it. For explanations."""
        step = self._state.step
        return None if step is None else (step.region.root, step.region.path(step))

    def closes(self, token_ids: Sequence[int]) -> bool:
        """In a region: the ids may come from here, and behind them no value is being written: they are not text of it."""
        state: PhaseState | None = self._state
        for token_id in token_ids:
            state = self._after(state, token_id) if state is not None else None
        return state is not None and not self._is_free(state)

    def is_free(self) -> bool:
        """In a region: the model is writing a value here, not filling in structure."""
        return self._is_free(self._state)

    def _is_free(self, state: PhaseState) -> bool:
        step = state.step
        if state.phase is not Phase.REGION or step is None:
            return True
        if step.is_free is None:
            step.is_free = count_allowed(step.region.mask(step)) * _FREE_SHARE > self._plan.vocabulary.size
        return step.is_free

    def may_end(self) -> bool:
        """In a region: it may end here."""
        step = self._state.step
        return self._state.phase is Phase.REGION and step is not None and step.region.may_end(step)

    def clone(self) -> PhaseMachine:
        copy = object.__new__(PhaseMachine)
        copy._plan, copy._state, copy._end_mask = self._plan, self._state, self._end_mask
        return copy

    def rollback(self, num_tokens: int) -> None:
        state = self._state
        for _ in range(num_tokens):
            if state.previous is None:
                raise ValueError(f"fence rollback: got {num_tokens} tokens, allowed no more than were advanced")
            state = state.previous
        self._state = state

    def explain(self) -> str:
        state = self._state
        if state.phase is not Phase.REGION:
            return f"phase {state.phase.value}"
        assert state.step is not None
        where = "after" if state.step.region.may_end(state.step) else "region"
        return f"phase {where}, {state.step.depth} tokens into the region"

    # ---- transitions ----------------------------------------------------------------------------------------------

    def _begin(self) -> PhaseState:
        plan = self._plan
        if plan.starts_in_reasoning and plan.reasoning is not None:
            return PhaseState(None, Phase.REASONING)
        if plan.text is None:
            begun = self._enter(None, plan.first_region or plan.region)
            assert begun is not None, "fence plan: got neither text nor a region, allowed one of them"
            return begun
        return PhaseState(None, Phase.OPENING if plan.opening is not None else Phase.TEXT)

    def _after(self, state: PhaseState, token_id: int) -> PhaseState | None:
        plan = self._plan
        match state.phase:
            case Phase.TEXT:
                assert plan.text is not None
                return self._after_text(state, plan.text, state.scan, token_id)
            case Phase.REGION:
                assert state.step is not None
                if token_id in plan.stop_ids:
                    return PhaseState(state, Phase.END, step=state.step) if state.step.region.may_end(state.step) else None
                step = state.step.region.after(state.step, token_id)
                if step is None:
                    return None
                if plan.opening is not None and token_id == plan.opening.marker_id and plan.reasoning is not None:
                    return PhaseState(state, Phase.REASONING)
                return PhaseState(state, Phase.REGION, step=step)
            case Phase.REASONING:
                assert plan.reasoning is not None
                return self._after_reasoning(state, plan.reasoning, token_id)
            case Phase.OPENING:
                return self._after_opening(state, token_id)
            case Phase.END:
                return PhaseState(state, Phase.END) if token_id in plan.stop_ids else None

    def _after_text(self, state: PhaseState | None, text: FreeText, scan: int, token_id: int) -> PhaseState | None:
        if text.is_plain(token_id):
            following = text.after(scan, token_id)
            if following >= 0:
                return PhaseState(state, Phase.TEXT, following)
            return self._enter(state, self._plan.region, self._left_over(token_id, following))
        if token_id == text.trigger_id:
            return self._enter(state, self._plan.region) if text.is_armed(scan) else None
        if token_id in text.ends:
            return PhaseState(state, Phase.END)
        return PhaseState(state, Phase.TEXT, scan) if text.accepts(token_id) else None

    def _after_reasoning(self, state: PhaseState, reasoning: FreeText, token_id: int) -> PhaseState | None:
        if token_id == reasoning.trigger_id:
            return self.content(state, b"")
        if token_id in reasoning.ends:
            return PhaseState(state, Phase.END)
        if not reasoning.accepts(token_id):
            return None
        following = reasoning.after(state.scan, token_id)
        if following < 0:
            return self.content(state, self._left_over(token_id, following))
        return PhaseState(state, Phase.REASONING, following)

    def _after_opening(self, state: PhaseState, token_id: int) -> PhaseState | None:
        """`scan` counts the bytes of the opening's text that stand there."""
        opening, text = self._opened()
        if token_id == opening.marker_id and state.scan == len(opening.text):
            return PhaseState(state, Phase.REASONING)
        data = self._plan.vocabulary.token_bytes(token_id)
        if text.accepts(token_id) and token_id not in text.ends and opening.text[state.scan :].startswith(data):
            return PhaseState(state, Phase.OPENING, state.scan + len(data))
        return self._after_text(state, text, self._scan_of_opening(state), token_id)

    def content(self, state: PhaseState | None, data: bytes) -> PhaseState | None:
        """The beginning of what follows the reasoning, where `data` of it is already there."""
        text = self._plan.text
        if text is None:
            return self._enter(state, self._plan.region, data)
        following = text.after_bytes(FreeText.START, data)
        if following < 0:
            return self._enter(state, self._plan.region, data[len(data) + 1 + following :])
        return PhaseState(state, Phase.TEXT, following)

    def _enter(self, state: PhaseState | None, compiled: CompiledRegion | None, data: bytes = b"") -> PhaseState | None:
        """The region, `data` of it already written; None where it cannot begin so."""
        if compiled is None:
            return None
        region = compiled.open()
        step: RegionStep | None = region.start
        for token_id in compiled.spell(data):
            step = region.after(step, token_id) if step is not None else None
        return None if step is None else PhaseState(state, Phase.REGION, step=step)

    def _left_over(self, token_id: int, following: int) -> bytes:
        data = self._plan.vocabulary.token_bytes(token_id)
        return data[len(data) + 1 + following :]

    def _scan_of_opening(self, state: PhaseState) -> int:
        opening, text = self._opened()
        return max(0, text.after_bytes(FreeText.START, opening.text[: state.scan]))

    def _opened(self) -> tuple[Opening, FreeText]:
        assert self._plan.opening is not None
        assert self._plan.text is not None
        return self._plan.opening, self._plan.text

    def _opening_mask(self, state: PhaseState) -> TokenMask | None:
        opening, text = self._opened()
        return text.mask_with(self._scan_of_opening(state), opening.marker_id if state.scan == len(opening.text) else None)
