"""One generation: the job that asked for it, the state it holds, what it has produced.

waiting ──admitted──▶ prefilling ──last prompt row──▶ decoding ──▶ ended
   └──────────── cancelled, failed ──────────────────────┴──────────▶

ids         p p p p p p | g g g g
in state    ############| # # #          the newest id is *pending*: it is fed by the next step
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zllm_ref.runtime.ports import ScriptPort, TokenFence
from zllm_ref.runtime.sampler import SampledToken, Sampler, SamplingParameters
from zllm_ref.runtime.state import SessionState


class EndReason(Enum):
    STOP_TOKEN = "stop_token"
    """The model's own end."""
    STOPPED = "stopped"
    """The listener said stop (a stop string)."""
    MAX_TOKENS = "max_tokens"
    CONTEXT_FULL = "context_full"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class PromptReport:
    """What the runtime found when a job was admitted: tokens reused and from where, tokens that will be kept."""

    prompt_tokens: int
    cached_tokens: int
    cache_tier: str | None
    cache_id: str | None
    """The id under which the end state will be found; None: it will not be kept."""
    hit_cache_id: str | None = None
    """The saved state that was reused, where its name is known."""
    timings: Timings | None = None
    """Up to the first token."""


@dataclass(frozen=True)
class Timings:
    """Seconds of a job's life, for the log line."""

    queue: float = 0.0
    restore: float = 0.0
    prefill: float = 0.0
    first_token: float = 0.0
    """From the submission on: also what the rounds of others took between the chunks."""
    decode: float = 0.0


class Listener(Protocol):
    """Told what happens to a job, from the runtime's thread: must return quickly and never raise."""

    def on_started(self, report: PromptReport) -> None:
        """The prompt is computed; tokens follow."""

    def on_tokens(self, choice: int, tokens: Ids[SampledToken]) -> bool:
        """These tokens entered the sequence. True: end it here (a stop string was seen)."""

    def on_ended(self, choice: int, reason: EndReason, stop_token: int | None) -> None:
        """No more tokens for this choice. After the last choice: `on_closed`."""

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        """All choices ended and the end state was kept under this id (None: not kept)."""

    def on_failed(self, message: str) -> None:
        """The job cannot go on; nothing more follows."""


@dataclass(frozen=True)
class RoundReport:
    """What one decode round was for one choice; for those who look on."""

    choice: int
    round: int
    """Number of the loop's round: all lanes of it have the same."""
    lanes: int
    """Sequences in the round."""
    seconds: float
    """Of the whole round."""
    position: int
    """Place of the first new token among the sequence's ids, prompt included."""
    num_tokens: int
    """Tokens gained."""
    guesses: tuple[int, ...] = ()
    """Guesses that were verified: guess j stood for the place `position` + j."""
    right: int = 0
    """So many of them, from the first on, were what the model said; the others were rejected."""


@dataclass(frozen=True)
class ChoicePlan:
    """How one choice samples, and the fence that holds it (None: free)."""

    sampling: SamplingParameters
    fence: TokenFence | None = None
    script: ScriptPort | None = None


@dataclass(frozen=True)
class GenerationJob:
    """What the bridge hands to the runtime: ids and numbers only."""

    prompt_ids: NDArray[np.int32]
    max_new_tokens: int
    stop_ids: frozenset[int]
    choices: tuple[ChoicePlan, ...]
    listener: Listener
    namespace: str = ""
    cache_id: str | None = None
    keep: bool = True
    """Keep the end state of the first choice in the prefix cache."""
    on_round: Callable[[RoundReport], None] | None = None
    """Told of each decode round, after its tokens, from the runtime's thread. None, the usual case: no report is made."""


@dataclass
class Sequence:
    """One choice of a job while it is decoded. Only the runtime's thread touches it."""

    job: GenerationJob
    choice: int
    state: SessionState
    sampler: Sampler
    fence: TokenFence | None
    script: ScriptPort | None
    produced: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    """Ids of the sequence that the state does not hold yet, oldest first."""
    first: list[SampledToken] = field(default_factory=list)
    """The token(s) that the last prompt row gave."""
    ended: EndReason | None = None

    @property
    def num_tokens(self) -> int:
        return int(self.job.prompt_ids.shape[0]) + len(self.produced)

    def check(self) -> None:
        """Ids in the state plus pending ids are all ids."""
        assert self.state.length + len(self.pending) == self.num_tokens, (self.state.length, self.pending, self.num_tokens)

    def ids_in_state(self) -> NDArray[np.int32]:
        """The ids whose rows the state holds."""
        ids = np.concatenate([self.job.prompt_ids, np.array(self.produced, dtype=np.int32)])
        return ids[: self.state.length]
