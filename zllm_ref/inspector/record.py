"""One request as it went by: references to what others made, and times. Nothing is worked out here.

Told by three: the server (bytes and frames, from the event loop), the engine (prompt, ids, from a worker and the runtime's
thread). Each appends to fields of its own, so that no lock is taken; whoever looks reads what is there at that moment.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zllm_ref.canonical.event import FinishReason
from zllm_ref.canonical.request import Request

if TYPE_CHECKING:  # the server imports this before the model is there: no torch, no tokenizer yet
    from zllm_ref.dialect import Segment
    from zllm_ref.runtime.sampler import SampledToken
    from zllm_ref.runtime.sequence import PromptReport, RoundReport, Timings

MOST_BODY_BYTES = 2 << 20
MOST_FRAMES = 20_000
MOST_TOKENS = 50_000
_FRAME_OVERHEAD = 160
"""Bytes of the objects around a frame's text, as CPython lays them out, rounded up."""
_STEP_OVERHEAD = 200

FORCED, ACCEPTED = 1, 2
"""Bits of `Record.how`, one byte a token."""


class State(StrEnum):
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODING = "decoding"
    ENDED = "ended"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (State.QUEUED, State.PREFILL, State.DECODING)


@dataclass(frozen=True)
class Arrival:
    """How a request came in. `headers` without secrets; `raw` as it came."""

    protocol: str
    transport: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes = b""

    @property
    def user_agent(self) -> str:
        return next((value for name, value in self.headers if name == "user-agent"), "")


class SentFrame(NamedTuple):  # as is `Step`: there is one of them for each token
    """`event_number`: which event of the first choice it was made of, counted from 0; None: of none."""

    at: float
    event: str | None
    data: str
    event_number: int | None


class Step(NamedTuple):
    """What one step of the runtime gave: tokens [start, end) of the answer, and the guesses that were fed."""

    at: float
    start: int
    end: int
    proposed: tuple[int, ...] = ()
    num_accepted: int = 0


class Record:
    """One request. `touch` is called after every change, with the bytes that it added."""

    def __init__(
        self, request_id: str, number: int, owner: str, arrival: Arrival, received: float, received_at_ms: float,
        clock: Callable[[], float], touch: Callable[[Record, int], None],
    ) -> None:  # fmt: skip
        self.request_id = request_id
        self.number = number
        self.owner = owner
        self.arrival = arrival
        self.transport = arrival.transport
        """Known for good once the body is read: `unary` becomes `sse` or `background` there."""
        self.received = received
        self.received_at_ms = received_at_ms
        self.version = 0
        self.num_bytes = 0
        self.is_dropped = False
        self._clock = clock
        self._touch = touch
        self.body_cut = max(0, len(arrival.raw) - MOST_BODY_BYTES)
        self.raw = arrival.raw[:MOST_BODY_BYTES]

        self.state = State.QUEUED
        self.end_reason: str | None = None
        self.error: str | None = None
        self.ended_at: float | None = None

        self.status: int | None = None
        self.frames: list[SentFrame] = []
        self.num_frames = 0
        self.frames_cut = 0
        """Bytes of frames that were too many to keep."""
        self._frame_bytes = 0
        self._num_events = 0

        self.request: Request | None = None
        self.segments: tuple[Segment, ...] = ()
        self.prompt_ids: NDArray[np.int32] = np.zeros(0, np.int32)
        self.starts_in_reasoning = False
        self.render_seconds: float | None = None
        self.watches_alternatives = False

        self.report: PromptReport | None = None
        self.started_at: float | None = None
        self.ids = array("i")
        """The tokens of the first choice, the one that ended it included."""
        self.how = bytearray()
        self.num_pending = 0
        """The newest tokens, which the state does not hold yet."""
        self.steps: list[Step] = []
        self.alternatives: dict[int, tuple[float, tuple[tuple[int, float], ...]]] = {}
        """By place in the answer: log probability, and the likeliest (id, log probability)."""
        self.num_proposed = 0
        self.num_accepted = 0
        self.timings: Timings | None = None
        self.kept_cache_id: str | None = None

        self.facts: dict[str, object] = {}
        """What was worked out when somebody looked, and is small: it goes with the record."""

    @property
    def hit_cache_id(self) -> str | None:
        """The saved state that was reused."""
        return self.report.hit_cache_id if self.report is not None else None

    # the server tells

    def on_frame(self, event: str | None, data: str, event_number: int | None) -> None:
        """A frame was made. Beyond the bounds only its bytes are counted."""
        self.num_frames += 1
        num_bytes = sys.getsizeof(data)
        if len(self.frames) >= MOST_FRAMES or self._frame_bytes + num_bytes > MOST_BODY_BYTES or self.is_dropped:
            self.frames_cut += len(data)
            return
        self._frame_bytes += num_bytes
        self.frames.append(SentFrame(self._clock(), event, data, event_number))
        self._touch(self, num_bytes + _FRAME_OVERHEAD)

    def next_event_number(self, choice: int) -> int | None:
        """The number of the next event, counted over the first choice's."""
        if choice:
            return None
        self._num_events += 1
        return self._num_events - 1

    def on_body(self, status: int, text: str) -> None:
        """A whole answer goes out in one piece."""
        self.status = status
        self.num_frames = 1  # what it was folded from is not what went out
        self.frames_cut = max(0, len(text) - MOST_BODY_BYTES)
        kept = text[:MOST_BODY_BYTES]
        self.frames = [SentFrame(self._clock(), None, kept, None)]
        self._touch(self, sys.getsizeof(kept) + _FRAME_OVERHEAD - self._frame_bytes)
        self._frame_bytes = sys.getsizeof(kept)

    def on_end(self, state: State, error: str | None = None) -> None:
        """The last byte is out, or nobody waits for it. The first end counts."""
        if self.state.is_final:
            return
        self.state = state
        self.ended_at = self._clock()
        self.error = self.error or error
        if self.end_reason is None or state is not State.ENDED:
            self.end_reason = {State.CANCELLED: "cancelled", State.ENDED: self.end_reason or "end"}.get(state, "error")
        self._touch(self, 0)

    # the engine tells

    def on_prompt(
        self, request: Request, segments: tuple[Segment, ...], prompt_ids: NDArray[np.int32], starts_in_reasoning: bool,
        render_seconds: float,
    ) -> None:  # fmt: skip
        """What the model will see."""
        self.segments = segments
        self.prompt_ids = prompt_ids
        self.starts_in_reasoning = starts_in_reasoning
        self.render_seconds = render_seconds
        self.request = request  # whoever looks asks for this: by then all else of the prompt is there
        self.state = State.PREFILL
        texts = sum(sys.getsizeof(segment.text) + 100 for segment in segments)
        # the canonical request shares its long texts with the segments; its structure takes about as much as the body
        self._touch(self, texts + prompt_ids.nbytes + 2 * len(self.raw))

    def on_started(self, report: PromptReport) -> None:
        self.report = report
        self.started_at = self._clock()
        self.state = State.DECODING
        self._touch(self, 0)

    def on_round(self, report: RoundReport) -> None:
        """The newest tokens came of one round, and these were its guesses."""
        start = report.position - len(self.prompt_ids)
        if report.choice or not report.guesses or self.is_dropped or start >= len(self.ids):
            return
        while self.steps and self.steps[-1].start >= start:
            self.steps.pop()
        self.steps.append(Step(self._clock(), start, len(self.ids), report.guesses, report.right))
        self.num_proposed += len(report.guesses)
        self.num_accepted += report.right
        self._touch(self, 36 * len(report.guesses))

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> None:
        if choice or self.is_dropped or len(self.ids) >= MOST_TOKENS:
            return
        start = len(self.ids)
        self.num_pending = len(tokens)
        num_bytes = _STEP_OVERHEAD + 5 * len(tokens)
        for token in tokens:
            if token.logprob is not None:
                self.alternatives[len(self.ids)] = (token.logprob, token.top)
                num_bytes += 200 + 120 * len(token.top)
            # whoever looks counts the ids: by then everything else of the token is there
            self.how.append((FORCED if token.forced else 0) | (ACCEPTED if token.drafted else 0))
            self.ids.append(token.token_id)
        self.steps.append(Step(self._clock(), start, len(self.ids)))
        self._touch(self, num_bytes)

    def on_ended(self, choice: int, reason: FinishReason) -> None:
        if choice == 0:
            self.end_reason = reason.value
            self._touch(self, 0)

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        self.kept_cache_id = kept_cache_id
        self.timings = timings
        if not self.arrival.protocol:  # nobody but the engine knows of this request
            self.on_end(State.ENDED)
        self._touch(self, 0)

    def on_failed(self, message: str) -> None:
        self.error = message
        self.on_end(State.FAILED, message)

    def note(self, name: str, fact: object) -> None:
        """Keeps something small that was worked out; a change like any other."""
        self.facts[name] = fact
        self._touch(self, 0)

    def forget(self) -> None:
        """It is gone from the store: whatever is still told is thrown away."""
        self.is_dropped = True
        self.frames.clear()
        self.alternatives.clear()
        self.request = None  # first, as it came last
        self.segments, self.raw = (), b""
