"""Events of one generation to what goes out: frames, guarded, until the answer has ended.

Used by every road out (SSE, unary, WebSocket, background), so that all of them tell the same story.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import Event, Failed, Finished
from zllm_ref.inspector import Record
from zllm_ref.protocols.sse import Frame
from zllm_ref.server.guard import Guard
from zllm_ref.server.wire import AnswerStream

_logger = logging.getLogger(__name__)


class Answer:
    """Feeds a stream with events and its frames to the guard. `is_ended`: nothing may follow; `error`: why it failed."""

    def __init__(self, stream: AnswerStream, guard: Guard, num_choices: int, record: Record | None = None) -> None:
        self._stream = stream
        self._guard = guard
        self._record = record
        self._open_choices = num_choices
        self.is_ended = False
        self.error: ApiError | None = None

    def on(self, events: Sequence[Event]) -> list[Frame]:
        """The frames of these events. A fault of our own ends the answer with the protocol's error frame (T7)."""
        frames: list[Frame] = []
        for event in events:
            if self.is_ended:
                break
            try:
                made = self._stream.on(event)
                self._guard.check(made)
            except ApiError as error:
                return [*frames, *self.fail(error)]
            except Exception:
                _logger.exception("the stream could not take %r", event)
                return [*frames, *self.fail(ApiError(ErrorKind.INTERNAL, "The server failed while making the answer."))]
            frames += made
            self._show(made, event)
            if isinstance(event, Failed):
                self.is_ended, self.error = True, event.error
            elif isinstance(event, Finished):
                self._open_choices -= 1
                self.is_ended = self._open_choices == 0
        return frames

    def say(self, frames: list[Frame]) -> list[Frame]:
        """Frames that no event made. Raises GrammarBroken."""
        self._guard.check(frames)
        self._show(frames)
        return frames

    def fail(self, error: ApiError) -> list[Frame]:
        self.is_ended, self.error = True, error
        frames = self._stream.fail(error)
        self._show(frames)
        return frames

    def end(self, frames: list[Frame]) -> list[Frame]:
        """Takes these frames, made elsewhere, for the end."""
        self.is_ended = True
        self._show(frames)
        return frames

    def _show(self, frames: Sequence[Frame], event: Event | None = None) -> None:
        """To whoever looks on."""
        if self._record is None:
            return
        number = None if event is None else self._record.next_event_number(getattr(event, "choice", 0))
        for frame in frames:
            self._record.on_frame(frame.event, frame.data, number)
