"""Both tiers under any order of events, against what must hold whatever happens.

Events: requests that start, restore, finish, fail or are cancelled; writes that end early, late or with an error; damaged
chunks; restarts. After each: the books of both tiers are right to the byte, every row that is handed out is the right one,
nobody waits when nothing runs, and what the disk holds is found again.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from tests.cache.toy_server import HeldWorker, InlineWorker, ToyServer
from tests.cache.toy_state import LAYERS, LINEAR, RINGS, ROW, QuickFiles, ToySession, ToyTarget
from zllm_ref.cache import Admission, AdmissionImpossible
from zllm_ref.cache.restore import Restore
from zllm_ref.cache.snapshot import Bytes
from zllm_ref.cache.units import UnitPolicy

NUM_EXAMPLES = 5_000 if settings.get_current_profile_name() == "nightly" else 40

answers = st.lists(st.sampled_from([1, 2]), max_size=5)
prompts = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=14)


class MoodyFiles(QuickFiles):
    """A disk that refuses writes while it is in the mood."""

    def __init__(self) -> None:
        self.refuses = False

    def write(self, descriptor: int, buffers: Sequence[Bytes]) -> None:
        if self.refuses:
            raise OSError(errno.ENOSPC, "full")
        super().write(descriptor, buffers)


@dataclass
class Request:
    admission: Admission
    prompt: list[int]
    room: int
    target: ToyTarget
    restore: Restore | None = None


class TieredMachine(RuleBasedStateMachine):
    requests = Bundle("requests")

    @initialize(
        rings=st.booleans(),
        capacity_tokens=st.integers(20, 90),
        ssd_bytes=st.sampled_from([0, 3_000, 1_000_000, 1_000_000]),
        write_behind=st.booleans(),
        interval=st.sampled_from([0, 3]),
    )
    def start(self, rings: bool, capacity_tokens: int, ssd_bytes: int, write_behind: bool, interval: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.running: list[Request] = []
        self.server = ToyServer(
            self.root,
            RINGS if rings else LINEAR,
            capacity_bytes=capacity_tokens * LAYERS * ROW,
            ssd_bytes=ssd_bytes,
            options={"write_behind": write_behind, "units": UnitPolicy(interval_tokens=interval)},
            writer=HeldWorker(),
            reader=HeldWorker(),
        )
        self.server.store.files = MoodyFiles()
        self.generation = 0

    @rule(target=requests, prompt=prompts, growth=st.integers(0, 5), namespace=st.sampled_from(["", "a"]))
    def ask(self, prompt: list[int], growth: int, namespace: str) -> Request | None:
        expected = self.server.cache.lookup(namespace, np.array(prompt, dtype=np.int32))
        try:
            admission = self.server.admit(prompt, growth, namespace)
        except AdmissionImpossible:
            return None
        if admission is None:
            assert self.running or self.server.cache.is_writing, "nobody runs, nothing is written, and yet it must wait"
            return None
        assert (admission.hit.length if admission.hit else 0) <= len(prompt) - 1
        if admission.hit is not None:
            assert expected is not None
            assert admission.hit.length <= expected.length
        request = Request(admission, prompt, growth, ToyTarget(len(prompt) + growth))
        if admission.restore is not None:
            request.restore = self.server.cache.start_restore(admission, request.target)
        self.running.append(request)
        return request

    @rule(prompt=prompts, answer=answers, namespace=st.sampled_from(["", "a"]))
    @precondition(lambda self: hasattr(self, "server") and not self.running)
    def a_whole_request(self, prompt: list[int], answer: list[int], namespace: str) -> None:
        """Alone on the server, with workers that work: it is always served."""
        workers = self.server.cache._reader, self.server.cache._writer
        self.server.settle()
        self.server.cache._reader = self.server.cache._writer = InlineWorker()
        try:
            self.server.ask(prompt, answer, namespace)
        except AdmissionImpossible:
            pass
        finally:
            self.server.settle()
            self.server.cache._reader, self.server.cache._writer = workers

    @rule()
    def the_reader_does_one_thing(self) -> None:
        if self.server.reader.waiting:
            self.server.reader.run_one()

    @rule()
    def the_writer_does_one_thing(self) -> None:
        if self.server.writer.waiting:
            self.server.writer.run_one()

    @rule()
    def the_cache_is_pumped(self) -> None:
        self.server.cache.pump()

    @rule(
        request=consumes(requests),
        answer=st.lists(st.sampled_from([1, 2]), max_size=5),
        how=st.sampled_from(["end", "end", "cancel"]),
    )
    def finish(self, request: Request | None, answer: list[int], how: str) -> None:
        if request is None or request not in self.running:
            return
        cache, admission = self.server.cache, request.admission
        if request.restore is not None:
            if how == "cancel":
                request.restore.cancel()
            while not request.restore.is_drained:
                self.server.reader.run_one()
        if how == "end":
            self._use(request)
            has_fixed = self.server.has_fixed
            for unit in admission.units:
                ids = request.prompt[:unit]
                cache.commit_unit(admission, np.array(ids, dtype=np.int32), ToySession(ids, has_fixed))
            ids = request.prompt + answer[: request.room]
            terminal = cache.commit(admission, np.array(ids, dtype=np.int32), ToySession(ids, has_fixed))
            assert terminal is not None or not admission.will_keep, "it was to be kept"
        cache.release(admission)
        cache.release(admission)
        self.running.remove(request)

    def _use(self, request: Request) -> None:
        """What the session would hold after copying and restoring; a refused restore leaves nothing to use."""
        hit, target = request.admission.hit, request.target
        if hit is None:
            return
        if request.restore is not None and not self.server.cache.finish_restore(request.admission, request.restore):
            return
        for use in hit.blocks:
            for layer in range(LAYERS):
                target.rows[layer][use.start * ROW : (use.start + use.num_rows) * ROW] = use.payload[layer][: use.num_rows * ROW]
        assert target.holds(request.prompt[: hit.length])
        if self.server.has_fixed:
            fixed = hit.fixed if request.restore is None else [bytes(part) for part in target.fixed]
            assert fixed == ToySession(request.prompt[: hit.length], True).copy_fixed()

    @rule(refuses=st.booleans())
    def the_disk_changes_its_mood(self, refuses: bool) -> None:
        self.server.store.files.refuses = refuses

    @rule(pick=st.integers(0, 1000), position=st.integers(0, 1000))
    def a_chunk_is_damaged(self, pick: int, position: int) -> None:
        chunks = sorted((self.root / "chunks").iterdir())
        if chunks:
            data = bytearray(chunks[pick % len(chunks)].read_bytes())
            data[position % len(data)] ^= 0x20
            chunks[pick % len(chunks)].write_bytes(data)

    @rule()
    @precondition(lambda self: hasattr(self, "server") and not self.running)
    def the_server_restarts(self) -> None:
        self.generation += 1
        moody = self.server.store.files
        self.server = self.server.restart(prefix=f"cache{self.generation}", writer=HeldWorker(), reader=HeldWorker())
        self.server.store.files = moody

    @invariant()
    @precondition(lambda self: hasattr(self, "server"))
    def books_are_right(self) -> None:
        self.server.cache.check()
        assert self.server.store.used_bytes <= self.server.store.capacity_bytes

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        for request in self.running:
            self.server.cache.release(request.admission)
        self.server.settle()
        self.server.cache.check()
        assert self.server.cache.pinned_bytes == self.server.cache.reserved_bytes == 0, "idle, and something is still held"
        self.server.store.close()
        shutil.rmtree(self.root)


TestTieredUnderAnyOrder = TieredMachine.TestCase
TestTieredUnderAnyOrder.settings = settings(max_examples=NUM_EXAMPLES, stateful_step_count=30, deadline=None)
