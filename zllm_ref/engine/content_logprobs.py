"""Log probabilities beside the text that their tokens spell (CH21).

    tokens    <think> h m </think> \n \n O K          queue of (text that the token completed, its log probability)
    content                              O K          what does not match the content was framing, and is dropped

A token that completes no character waits for the one that does. Joined, the bytes of all entries are the content's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from zllm_ref.canonical.event import TokenLogprob


@dataclass
class _Spelled:
    text: str
    logprob: TokenLogprob | None
    """None: it went out with the first part of the token's text."""
    is_marker: bool = False
    """It may have been left out of the content although what stands around it is there."""


class ContentLogprobs:
    """The tokens of one choice that may still turn out to be content."""

    def __init__(self) -> None:
        self._queue: deque[_Spelled] = deque()

    def push(self, text: str, logprob: TokenLogprob, *, is_marker: bool = False) -> None:
        """A token, and the text that is certain since it came: empty inside a character."""
        self._queue.append(_Spelled(text, logprob, is_marker))

    def complete(self, text: str) -> None:
        """The characters that the latest tokens left open ended as `text` (U+FFFD)."""
        if self._queue:
            self._queue[-1].text += text

    def skip(self) -> None:
        """What came so far is reasoning or a call: it has no place in the content's list."""
        self._queue.clear()

    def take(self, text: str) -> tuple[TokenLogprob, ...]:
        """The entries of the tokens that begin in `text`, the next piece of the content."""
        while self._queue and not self._begins_with(text):
            self._queue.popleft()
        taken = []
        left = len(text)
        while self._queue and left > 0:
            first = self._queue[0]
            if first.is_marker and not text.startswith(first.text[:left], len(text) - left):
                self._queue.popleft()
                continue
            if first.logprob is not None:
                taken.append(first.logprob)
                first.logprob = None
            if len(first.text) > left:
                first.text = first.text[left:]
                break
            left -= len(first.text)
            self._queue.popleft()
        return tuple(taken)

    def _begins_with(self, text: str) -> bool:
        """The tokens in the queue spell `text` and perhaps more."""
        place = 0
        for spelled in self._queue:
            end = place + len(spelled.text)
            if not spelled.text.startswith(text[place:end]):
                if spelled.is_marker and place:
                    continue
                return False
            place = end
            if place >= len(text):
                return True
        return False
