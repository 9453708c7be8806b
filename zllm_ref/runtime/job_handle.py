"""A job inside the loop: what it asked for, what it holds, how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zllm_ref.cache.admission import Admission
from zllm_ref.cache.restore import Restore
from zllm_ref.runtime.draft.drafter import Drafter
from zllm_ref.runtime.sequence import GenerationJob, Sequence, Timings
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.verify import DraftedSequence


@dataclass(eq=False)
class JobHandle:
    """Only the runtime's thread touches it, but for `cancel`: that may be called from any thread, any number of times."""

    job: GenerationJob
    _wake: Callable[[], None]
    submitted: float
    admission: Admission | None = None
    state: SessionState | None = None
    sequences: list[Sequence] = field(default_factory=list)
    timings: Timings = field(default_factory=Timings)
    cancelled: bool = False
    closed: bool = False
    cached_tokens: int = 0
    restore: Restore | None = None
    """The saved state that is on its way from SSD into `state`."""
    units: list[int] = field(default_factory=list)
    """Prompt lengths at which the state is still to be kept, ascending."""
    copied_tokens: int | None = None
    """So far the prompt's blocks are saved, or copied to be saved; None: not looked at yet."""
    drafter: Drafter | None = None
    """Who follows the prompt, for the first choice."""
    drafted: list[DraftedSequence] = field(default_factory=list)
    """`sequences`, each with its drafter, where the loop has drafters."""
    admitted: float = 0.0
    decode_started: float = 0.0

    def cancel(self) -> None:
        """The answer is no longer wanted: the job ends within one step and gives back what it holds."""
        self.cancelled = True
        self._wake()
