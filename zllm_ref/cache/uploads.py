"""The uploads of one restore: in order, beside the reading of what comes after them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Uploads:
    """Runs what is added in a thread of its own, which exists only where there is something to wait for.

    After the first failure nothing else runs; `finish` returns when nothing runs any more.
    """

    def __init__(self, *, is_inline: bool) -> None:
        self._failure: BaseException | None = None
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = None if is_inline else threading.Thread(target=self._run, name="zllm-upload", daemon=True)
        if self._thread is not None:
            self._thread.start()

    def add(self, upload: Callable[[], None]) -> None:
        """Runs the upload soon; where nothing is to be waited for, now."""
        if self._thread is None:
            upload()
        else:
            self._queue.put(upload)

    def raise_failure(self) -> None:
        """Raises RuntimeError when an upload failed: a fault of the device, never of what was read."""
        if self._failure is not None:
            raise RuntimeError(str(self._failure)) from self._failure

    def finish(self) -> None:
        """Returns when all that was added has run, or will never run. Twice is once."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (upload := self._queue.get()) is not None:
            if self._failure is None:
                try:
                    upload()
                except (OSError, ValueError, RuntimeError) as error:
                    self._failure = error
