"""Who is told what the engine does with a request, beside the one who asked. Nobody, by default: then nothing is done for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from zllm_ref.canonical.event import FinishReason
from zllm_ref.canonical.request import Request
from zllm_ref.runtime.sampler import SampledToken
from zllm_ref.runtime.sequence import PromptReport, RoundReport, Timings

if TYPE_CHECKING:
    from zllm_ref.engine.bridge import Prompt


class AnswerObserver(Protocol):
    """Hears of one request, from the runtime's thread: returns at once and never raises."""

    def on_started(self, report: PromptReport) -> None:
        """The prompt is computed; tokens follow."""

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> None:
        """These tokens entered the sequence in one step, the id that ends the answer included."""

    def on_round(self, report: RoundReport) -> None:
        """A decode round is over; its tokens were told before."""

    def on_ended(self, choice: int, reason: FinishReason) -> None:
        """No more tokens for this choice."""

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        """All choices ended; the end state was kept under this id (None: not kept)."""

    def on_failed(self, message: str) -> None:
        """The request cannot go on."""


class EngineObserver(Protocol):
    """Hears of every request."""

    @property
    def num_alternatives(self) -> int:
        """How many likely tokens to name beside each sampled one; 0: none, which is the only number that costs nothing."""

    def open(
        self, request: Request, prompt: Prompt, prompt_ids: NDArray[np.int32], render_seconds: float
    ) -> AnswerObserver | None:
        """A request is about to be submitted. None: this one is not observed."""
