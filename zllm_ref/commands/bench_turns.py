"""Who measures now. Several measurers, each with its process already up, take turns sample by sample:

    ours   |load, warm up|          |sample|        |sample|        ...
    peer                 |load, ...|        |sample|        |sample|...

so whatever else the machine does meets all of them alike, and a ratio means something on a busy one too.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from zllm_ref.commands.peer_process import PeerError


class NotMeasured(PeerError):
    """Another measurer failed, so this one was not asked."""


class Turns:
    """One turn that goes round. Whoever measures holds it; each measurer is a thread."""

    def __init__(self, names: Sequence[str]) -> None:
        self._waiting = list(names)
        """Round robin: the first one has the turn."""
        self._changed = threading.Condition()
        self._failed: str | None = None

    def wait(self, name: str) -> None:
        """Returns when it is the measurer's turn; raises NotMeasured when another one has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or self._waiting[0] == name)
            if self._failed is not None:
                raise NotMeasured(f"{name}: not measured, because {self._failed} could not be")

    def pass_on(self, name: str) -> None:
        """Gives the turn to the next measurer, and waits until it has come round."""
        with self._changed:
            self._waiting.append(self._waiting.pop(0))
            self._changed.notify_all()
        self.wait(name)

    def leave(self, name: str) -> None:
        """The measurer is done."""
        with self._changed:
            self._waiting.remove(name)
            self._changed.notify_all()

    def fail(self, name: str) -> None:
        """Ends the round: without one measurer there is nothing to compare."""
        with self._changed:
            self._failed = self._failed or name
            self._changed.notify_all()
