"""The one machine that the runtime meets: the phases of the answer and the guard, merged.

    allowed = what the phases allow, minus what the guard excludes, never nothing
    forced  = what the phases force; else what the guard makes come: the end of a reasoning, of a value, of the answer

Phases and guard stay machines of their own; here they are only advanced together and asked together. What is being forced
upon the guard's word is part of the state, so that clones and rollbacks keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zllm_ref.fence.generation_guard import GenerationGuard, Verdict
from zllm_ref.fence.grammar import Node
from zllm_ref.fence.json_schema_fence import SchemaProblem
from zllm_ref.fence.mask import TokenMask, every_token, is_allowed, mask_of, without
from zllm_ref.fence.phase_machine import Phase, PhaseMachine, PhasePlan


@dataclass(frozen=True, slots=True)
class Closers:
    """Ways to bring something to its end, each as ids in the tokenizer's own spelling; the first legal one is taken."""

    reasoning: tuple[int, ...] = ()
    value: tuple[tuple[int, ...], ...] = ()
    call: tuple[tuple[int, ...], ...] = ()
    """As `value`, and what closes the levels around it."""


class TokenFence:
    """Implements the runtime's `TokenFence` port."""

    def __init__(
        self,
        phases: PhaseMachine,
        guard: GenerationGuard | None = None,
        *,
        closers: Closers | None = None,
        problems: tuple[SchemaProblem, ...] = (),
    ) -> None:
        self._phases = phases
        self._guard = guard
        self._closers = closers or Closers()
        self._pending: tuple[int, ...] = ()
        self._history: _History | None = None
        self.problems = problems
        """What the fence does not hold although the request asks for it: validate a finished call when this is not empty."""

    @property
    def phase(self) -> Phase:
        return self._phases.phase

    @property
    def plan(self) -> PhasePlan:
        """What the phases run on: for explanations and for the tests' oracle."""
        return self._phases.plan

    @property
    def verdict(self) -> Verdict:
        """What the guard says now. STOP stays, so that such an end can be told from the model's own."""
        return self._guard.verdict if self._guard is not None else Verdict.GO_ON

    @property
    def excluded(self) -> tuple[int, ...]:
        """What the guard takes out of the next token's choices. For explanations."""
        return (self._guard.excluded,) if self._guard is not None and self._guard.verdict is Verdict.EXCLUDE else ()

    def region_path(self) -> tuple[Node, list[int]] | None:
        """In a region: its grammar, and the ids that were read of it. For explanations."""
        return self._phases.region_path()

    def allowed(self) -> TokenMask | None:
        if self._guard is None:
            return self._phases.allowed()
        if self._pending:
            return mask_of(self._pending[:1], self.plan.vocabulary.size)
        mask = self._phases.allowed()
        if self._guard.verdict is Verdict.EXCLUDE:
            return self._without(mask, self._guard.excluded)
        return mask

    def forced(self) -> Sequence[int]:
        return self._pending or self._phases.forced()

    def advance(self, token_id: int) -> None:
        phases, guard = self._phases, self._guard
        if guard is None:
            phases.advance(token_id)
            return
        in_region = phases.phase is Phase.REGION
        is_free = not in_region or phases.is_free()
        phases.advance(token_id)
        may_end = in_region and phases.may_end()
        guard.advance(token_id, phases.phase, is_free=is_free, may_end=may_end)
        pending = self._pending
        self._history = (self._history, pending)
        if pending or guard.verdict is not Verdict.GO_ON:
            left = pending[1:] if pending and pending[0] == token_id else ()
            self._pending = left or self._wanted(guard.verdict)

    def legal_prefix(self, token_ids: Sequence[int]) -> int:
        """How many of `token_ids`, walked from here, the fence allows: verified rows beyond that are cut. Nothing moves."""
        probe = self.clone()
        for count, token_id in enumerate(token_ids):
            if not is_allowed(probe.allowed(), token_id):
                return count
            probe.advance(token_id)
        return len(token_ids)

    def clone(self) -> TokenFence:
        copy = object.__new__(TokenFence)
        copy.__dict__.update(self.__dict__)
        copy._phases = self._phases.clone()
        copy._guard = self._guard.clone() if self._guard is not None else None
        return copy

    def rollback(self, num_tokens: int) -> None:
        self._phases.rollback(num_tokens)
        if self._guard is None:
            return
        self._guard.rollback(num_tokens)
        for _ in range(num_tokens):
            assert self._history is not None
            self._history, self._pending = self._history

    def explain(self) -> str:
        parts = [self._phases.explain()]
        if self._guard is not None:
            parts.append(self._guard.explain())
        if self.problems:
            parts.append(f"{len(self.problems)} rules not held")
        return "; ".join(parts)

    # ---- what the guard makes come ------------------------------------------------------------------------------------

    def _wanted(self, verdict: Verdict) -> tuple[int, ...]:
        """The ids to come, or none where nothing of the kind is legal yet (inside a character, before a required value)."""
        phase = self._phases.phase
        match verdict:
            case Verdict.CLOSE_REASONING:
                return self._closers.reasoning
            case Verdict.CLOSE_VALUE:
                return self._first_legal(self._closers.value)
            case Verdict.END_CALL:
                return self._first_legal(self._closers.call)
            case Verdict.STOP if phase is Phase.REASONING:
                return self._closers.reasoning
            case Verdict.STOP if phase is Phase.REGION and not self._phases.may_end():
                return self._first_legal(self._closers.call)
            case Verdict.STOP if phase is not Phase.END:
                return self.plan.stop_ids[:1]
            case _:
                return ()

    def _first_legal(self, closers: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        for ids in closers:
            if self._phases.legal_prefix(ids) == len(ids):
                return ids
        return ()

    def _without(self, mask: TokenMask | None, token_id: int) -> TokenMask | None:
        if mask is None:
            mask = every_token(self.plan.vocabulary.size)
        left = without(mask, (token_id,))
        return left if left.any() else mask


_History: TypeAlias = "tuple[_History | None, tuple[int, ...]]"
