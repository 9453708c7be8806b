"""The one machine that the runtime meets: the phases of the answer and the guard, merged.

    allowed = what the phases allow, minus what the guard excludes, never nothing
    forced  = what the phases force; else what the guard makes come: the end of a reasoning, of a value, of the answer

Phases and guard stay machines of their own; here they are only advanced together and asked together. What is being forced
upon the guard's word is part of the state, so that clones and rollbacks keep it.

Nearly all tokens of free text change nothing: they are known by one look into a table, and only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zllm_ref.fence.generation_guard import GenerationGuard
from zllm_ref.fence.grammar import Node
from zllm_ref.fence.guard_settings import Verdict
from zllm_ref.fence.json_schema_fence import SchemaProblem
from zllm_ref.fence.mask import TokenMask, every_token, is_allowed, mask_of, without
from zllm_ref.fence.phase_machine import Phase, PhaseMachine, PhasePlan


@dataclass(frozen=True, slots=True)
class Closers:
    """Ways to bring something to its end, each as ids in the tokenizer's own spelling; the first that does is taken."""

    reasoning: tuple[int, ...] = ()
    value: tuple[tuple[int, ...], ...] = ()
    """Of values, and of the levels of JSON around them."""


class TokenFence:
    """Implements the runtime's `TokenFence` port."""

    def __init__(
        self,
        phases: PhaseMachine,
        guard: GenerationGuard | None = None,
        *,
        closers: Callable[[], Closers] = Closers,
        problems: tuple[SchemaProblem, ...] = (),
    ) -> None:
        self._phases = phases
        self._guard = guard
        self._closers = closers
        self._pending: tuple[int, ...] = ()
        self._history: _History | None = None
        self._calm: bytearray | None = None
        """Tokens that leave everything as it is; None: every token may change something."""
        self._calm_mask: TokenMask | None = None
        self._num_calm = 0
        """Tokens since the last one that the phases were told of."""
        self._look()
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
        if self._calm is not None:
            return self._calm_mask
        if self._guard is None:
            return self._phases.allowed()
        if self._pending:
            return mask_of(self._pending[:1], self.plan.vocabulary.size)
        mask = self._phases.allowed()
        if self._guard.verdict is Verdict.EXCLUDE:
            return self._without(mask, self._guard.excluded)
        return mask

    def forced(self) -> Sequence[int]:
        if self._calm is not None:
            return ()
        return self._pending or self._phases.forced()

    def advance(self, token_id: int) -> None:
        calm = self._calm
        if calm is not None and calm[token_id] and (self._guard is None or self._guard.take(token_id)):
            self._num_calm += 1
            return
        phases, guard = self._phases, self._guard
        in_region = phases.phase is Phase.REGION
        is_free = guard is None or not in_region or phases.is_free()
        phases.advance(token_id)
        pending = self._pending
        self._history = (self._history, pending, self._num_calm)
        self._num_calm = 0
        if guard is not None:
            may_end = in_region and phases.may_end()
            guard.advance(token_id, phases.phase, is_free=is_free, may_end=may_end)
            if pending or guard.verdict is not Verdict.GO_ON:
                left = pending[1:] if pending and pending[0] == token_id else ()
                self._pending = left or self._wanted(guard.verdict)
        self._look()

    def _look(self) -> None:
        """Whether the next token may be a calm one, and what is allowed then."""
        text = None
        if not self._pending and (self._guard is None or self._guard.verdict is Verdict.GO_ON):
            text = self._phases.free_text()
        self._calm = text.calm if text is not None else None
        self._calm_mask = text.mask(text.START) if text is not None else None

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
        """Raises ValueError for more tokens than were advanced; nothing has changed then."""
        history, num_calm, left, told = self._history, self._num_calm, num_tokens, 0
        pending = self._pending
        while left > num_calm:
            if history is None:
                raise ValueError(f"fence rollback: got {num_tokens} tokens, allowed no more than were advanced")
            left -= num_calm + 1
            told += 1
            history, pending, num_calm = history
        self._phases.rollback(told)
        if self._guard is not None:
            self._guard.rollback(num_tokens)
        self._history, self._pending, self._num_calm = history, pending, num_calm - left
        self._look()

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
                return self._closers().reasoning
            case Verdict.CLOSE_VALUE | Verdict.END_CALL:
                return self._value_closer()
            case Verdict.STOP if phase is Phase.REASONING:
                return self._closers().reasoning
            case Verdict.STOP if phase is Phase.REGION and not self._phases.may_end():
                return self._value_closer()
            case Verdict.STOP if phase is not Phase.END:
                return self.plan.stop_ids[:1]
            case _:
                return ()

    def _value_closer(self) -> tuple[int, ...]:
        return next((ids for ids in self._closers().value if self._phases.closes(ids)), ())

    def _without(self, mask: TokenMask | None, token_id: int) -> TokenMask | None:
        if mask is None:
            mask = every_token(self.plan.vocabulary.size)
        left = without(mask, (token_id,))
        return left if left.any() else mask


_History: TypeAlias = "tuple[_History | None, tuple[int, ...], int]"
"""Before a token that the phases were told of: what was before that, what was being forced, the calm tokens in between."""
