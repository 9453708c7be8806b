"""Tokens of one choice, one after another, into canonical events: text cut at stop strings, never inside a character.

    id ─ Detokenizer ─▶ pieces ─ parser (tools, reasoning) ─▶ deltas ─ stop strings ─▶ events

What might be the beginning of a stop string is held back until it is known (CH20); markers never leak into text. Log
probabilities travel with the text that their tokens spell (CH21).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zllm_ref.canonical.event import Event, TextDelta, TokenLogprob
from zllm_ref.tokenizer.detokenizer import Detokenizer, TextPiece
from zllm_ref.tokenizer.vocabulary import Vocabulary


class StopStringScanner:
    """Passes text on until one of the stop strings appears; holds back what could still become one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(text for text in stop if text)
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def push(self, text: str) -> str:
        """What is certain to come before any stop string. Nothing any more once one was found."""
        if self.found is not None:
            return ""
        if not self._stop:
            return text
        self._held += text
        hits = [(self._held.find(stop), stop) for stop in self._stop if stop in self._held]
        if hits:
            # the earliest match wins; of two at one place the longer one, whichever order the client gave
            position, self.found = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
            certain, self._held = self._held[:position], ""
            return certain
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        certain, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return certain

    def finish(self) -> str:
        """The end of the text: what was held back after all."""
        certain, self._held = self._held, ""
        return certain


class TextAnswer:
    """One choice's answer where only text is expected."""

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str], choice: int) -> None:
        self._detokenizer = Detokenizer(vocabulary)
        self._scanner = StopStringScanner(stop)
        self._choice = choice
        self._logprobs: deque[tuple[int, TokenLogprob]] = deque()  # (bytes spelled before the token, token)
        self._spelled_bytes = 0
        self._sent_bytes = 0

    @property
    def stop_string(self) -> str | None:
        return self._scanner.found

    @property
    def reasoning_tokens(self) -> int:
        return 0

    def push(self, token_id: int, logprob: TokenLogprob | None = None) -> list[Event]:
        """The events that this token makes certain. `stop_string` is set when the answer must end."""
        if logprob is not None and self._scanner.found is None:
            self._logprobs.append((self._spelled_bytes, logprob))
            self._spelled_bytes += len(logprob.bytes)
        text = "".join(piece.text for piece in self._detokenizer.push(token_id) if isinstance(piece, TextPiece))
        return self._delta(self._scanner.push(text))

    def finish(self) -> list[Event]:
        """What is still held back, at the end of the answer."""
        text = "".join(piece.text for piece in self._detokenizer.finish() if isinstance(piece, TextPiece))
        certain = self._scanner.push(text)
        return self._delta(certain + self._scanner.finish())

    def _delta(self, text: str) -> list[Event]:
        if not text:
            return []
        self._sent_bytes += len(text.encode("utf-8", "surrogatepass"))
        logprobs = []
        while self._logprobs and self._logprobs[0][0] < self._sent_bytes:
            logprobs.append(self._logprobs.popleft()[1])
        return [TextDelta(text, self._choice, tuple(logprobs))]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
