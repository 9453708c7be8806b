"""Who is told what the engine does with a request, beside the one who asked. Nobody, by default: then nothing is done for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from zllm_ref.canonical.event import FinishReason
from zllm_ref.canonical.request import Request
from zllm_ref.runtime.sampler import SampledToken
from zllm_ref.runtime.sequence import PromptReport, RoundReport, Timings

if TYPE_CHECKING:
    from zllm_ref.engine.bridge import Prompt

_log = logging.getLogger(__name__)


class AnswerObserver(Protocol):
    """Hears of one request, from the runtime's thread: returns at once and never raises."""

    def on_started(self, report: PromptReport) -> None:
        """The prompt is computed; tokens follow."""

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> None:
        """These tokens entered the sequence in one step, the id that ends the answer included."""

    def on_round(self, report: RoundReport) -> None:
        """A decode round is over; its tokens were told before. Told where somebody guesses, and nowhere else."""

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


def opened(
    observer: EngineObserver | None, request: Request, prompt: Prompt, prompt_ids: NDArray[np.int32], render_seconds: float
) -> AnswerObserver | None:
    """Who hears of this request; he cannot end its answer, whatever he raises."""
    if observer is None:
        return None
    try:
        found = observer.open(request, prompt, prompt_ids, render_seconds)
    except Exception:  # noqa: BLE001  who only looks on must not end an answer; the log has it
        _log.exception("request=%s cannot be observed", request.request_id)
        return None
    return None if found is None else _Isolated(found, request.request_id)


class _Isolated:
    """An `AnswerObserver` that never raises: the one inside hears nothing more once it has."""

    def __init__(self, observer: AnswerObserver, request_id: str) -> None:
        self._observer: AnswerObserver | None = observer
        self._request_id = request_id

    def on_started(self, report: PromptReport) -> None:
        self._tell(lambda observer: observer.on_started(report))

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> None:
        if self._observer is None:
            return
        try:  # as `_tell` does it, for each token
            self._observer.on_tokens(choice, tokens)
        except Exception:  # noqa: BLE001
            self._give_up()

    def on_round(self, report: RoundReport) -> None:
        self._tell(lambda observer: observer.on_round(report))

    def on_ended(self, choice: int, reason: FinishReason) -> None:
        self._tell(lambda observer: observer.on_ended(choice, reason))

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        self._tell(lambda observer: observer.on_closed(kept_cache_id, timings))

    def on_failed(self, message: str) -> None:
        self._tell(lambda observer: observer.on_failed(message))

    def _tell(self, call: Callable[[AnswerObserver], None]) -> None:
        if self._observer is None:
            return
        try:
            call(self._observer)
        except Exception:  # noqa: BLE001  as in `opened`
            self._give_up()

    def _give_up(self) -> None:
        _log.exception("request=%s is observed no longer", self._request_id)
        self._observer = None
