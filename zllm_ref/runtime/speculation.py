"""The drafts of one loop: a drafter for each sequence, what they hold in bytes, the rounds that verify their guesses.

    admitted ─ open ─▶ a drafter on the session ─ follow the prompt's chunks ─▶ begin: one for each choice ─ rounds ─▶ closed

Belongs to the runtime's thread. A drafter that breaks is left out from then on; the answer is the same without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zllm_ref.runtime.decode import Fail
from zllm_ref.runtime.draft.drafter import DrafterFactory
from zllm_ref.runtime.draft.guarded import GuardedDrafter
from zllm_ref.runtime.draft.planner import DraftPlanner
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.prefill import ChunkRows
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.verify import DraftedSequence, Tell, Verified, verify_round


@dataclass
class DraftCounts:
    """Since the loop began. Read from other threads: each number is right, not all at once."""

    rounds: int = 0
    """Rounds in which guesses were verified."""
    drafted: int = 0
    """Guesses that were verified."""
    accepted: int = 0
    """Those of them that were what the model said."""


class Speculation:
    """Drafters of one factory at work on one model."""

    def __init__(
        self, model: Model, factory: DrafterFactory, num_token_ids: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._model = model
        self._factory = factory
        self._num_token_ids = num_token_ids
        self.planner = DraftPlanner(factory.most_length, factory.guesses_at_once, clock)
        self.counts = DraftCounts()

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Layers whose rows the prompt's chunks must hand out."""
        return self._factory.feature_layers

    def session_bytes(self, num_tokens: int) -> int:
        """Bytes beside the session's state, for one choice."""
        return self._factory.session_bytes(num_tokens)

    def open(self, handle: JobHandle) -> None:
        """The job was admitted: a drafter begins on its session, which may hold restored rows already."""
        if handle.state is not None and all(plan.script is None for plan in handle.job.choices):
            handle.drafter = self._guarded(handle, handle.state)

    def follow_prompt(self, handle: JobHandle, start: int, rows: ChunkRows) -> None:
        """A chunk of the prompt from position `start` on is in the state."""
        if handle.drafter is None:
            return
        # of the prompt's last row nobody knows yet what comes after it
        next_ids = handle.job.prompt_ids[start + 1 : start + 1 + rows.followed.shape[0]].tolist()
        if next_ids:
            handle.drafter.follow(start, rows.followed[: len(next_ids)], next_ids)

    def begin(self, handle: JobHandle, rows: ChunkRows) -> None:
        """The first tokens are there: each choice gets its drafter."""
        last = int(handle.job.prompt_ids.shape[0]) - 1
        for sequence in handle.sequences:
            drafter = handle.drafter
            if drafter is not None and sequence.choice > 0:
                drafter = self._guarded(handle, sequence.state)
            if drafter is not None:
                drafter.follow(last, rows.followed[-1:], sequence.pending[:1])
            handle.drafted.append(DraftedSequence(sequence, drafter, self.planner.new_outlook()))
        handle.drafter = None

    def run_round(self, lanes: Sequence[DraftedSequence], tell: Tell, fail: Fail) -> list[Verified]:
        """One round of all these sequences."""
        results = verify_round(self._model, lanes, self._num_token_ids, tell, self.planner, self.feature_layers, fail)
        if any(result.guesses for result in results):
            self.counts.rounds += 1
            self.counts.drafted += sum(result.proposed for result in results)
            self.counts.accepted += sum(result.right for result in results)
        return results

    def _guarded(self, handle: JobHandle, state: SessionState) -> GuardedDrafter:
        return GuardedDrafter(lambda: self._factory.begin(state, handle.job.prompt_ids.tolist()))
