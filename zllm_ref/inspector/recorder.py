"""The last requests, within a bound of bytes: the oldest go first."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from zllm_ref.canonical.request import Request
from zllm_ref.inspector.record import Arrival, Record

if TYPE_CHECKING:
    from zllm_ref.engine.bridge import Prompt

MOST_REQUESTS = 200
MOST_BYTES = 64 << 20
NUM_ALTERNATIVES = 5


class Recorder:
    """Keeps `most_requests` records of at most `most_bytes` together. Told from several threads.

    Every change has a number, counted up: whoever looks asks for what has a greater one than he has seen.
    """

    def __init__(
        self,
        most_requests: int = MOST_REQUESTS,
        most_bytes: int = MOST_BYTES,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.most_requests = most_requests
        self.most_bytes = most_bytes
        self.num_watchers = 0
        """Pages that look at alternatives now."""
        self.clock = clock
        self._wall = wall
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._gone: OrderedDict[str, tuple[int, str]] = OrderedDict()
        """Ids that were dropped lately: (change number, owner)."""
        self._changes = itertools.count(1)
        self._numbers = itertools.count(1)
        self._latest = 0
        self._num_bytes = 0
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Of all records, by estimate."""
        return self._num_bytes

    @property
    def latest(self) -> int:
        """Number of the newest change."""
        return self._latest

    @property
    def num_alternatives(self) -> int:
        """Asked for by the engine: only while somebody looks at them."""
        return NUM_ALTERNATIVES if self.num_watchers else 0

    def arrive(self, request_id: str, owner: str, arrival: Arrival) -> Record:
        """A request has come in."""
        record = Record(
            request_id,
            next(self._numbers),
            owner,
            arrival,
            self.clock(),
            self._wall() * 1000,
            self.clock,
            self._touch,
        )
        with self._lock:
            self._records[request_id] = record
        self._touch(record, 1000 + len(record.raw))
        return record

    def open(self, request: Request, prompt: Prompt, prompt_ids: NDArray[np.int32], render_seconds: float) -> Record | None:
        """The engine's side of a request: of one that arrived, or of one that came in by no wire."""
        record = self.get(request.request_id)
        if record is None:
            if request.request_id in self._gone:
                return None
            record = self.arrive(request.request_id, request.cache.namespace, Arrival("", "", "", ""))
        record.watches_alternatives = self.num_watchers > 0
        record.on_prompt(request, prompt.segments, prompt_ids, prompt.starts_in_reasoning, render_seconds)
        return record

    def get(self, request_id: str) -> Record | None:
        with self._lock:
            return self._records.get(request_id)

    def records(self, owner: str) -> list[Record]:
        """Those of one owner, oldest first."""
        with self._lock:
            return [record for record in self._records.values() if record.owner == owner]

    def gone_after(self, owner: str, change: int) -> list[str]:
        with self._lock:
            return [name for name, (number, whose) in self._gone.items() if number > change and whose == owner]

    def _touch(self, record: Record, num_bytes: int) -> None:
        """Numbers the change, accounts for its bytes, and drops the oldest while there are too many."""
        with self._lock:
            self._latest = record.version = next(self._changes)
            if record.is_dropped:
                return
            record.num_bytes += num_bytes
            self._num_bytes += num_bytes
            while self._records and (len(self._records) > self.most_requests or self._num_bytes > self.most_bytes):
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        name, oldest = self._records.popitem(last=False)
        self._num_bytes -= oldest.num_bytes
        oldest.forget()
        self._gone[name] = (next(self._changes), oldest.owner)
        self._latest = self._gone[name][0]
        while len(self._gone) > self.most_requests:
            self._gone.popitem(last=False)
