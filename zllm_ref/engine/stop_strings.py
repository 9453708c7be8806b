"""Stop strings in text that comes in pieces (CH20): where the text ends, whatever the pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStringScanner:
    """Passes text on until one of the stop strings appears; holds back what could still become one.

    The stop string that is complete first wins, as if the text were read character by character; of two that are complete at
    the same place the longer one. So neither the client's order nor the cuts of the text matter.
    """

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
        hits = [(self._held.find(stop) + len(stop), stop) for stop in self._stop if stop in self._held]
        if hits:
            end, self.found = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
            certain, self._held = self._held[: end - len(self.found)], ""
            return certain
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        certain, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return certain

    def finish(self) -> str:
        """The end of the text: what was held back after all."""
        certain, self._held = self._held, ""
        return certain


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
