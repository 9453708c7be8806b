"""A snapshot on its way into a session: stages, timeouts, failures, and when computing is faster."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cache.toy_server import HeldWorker, ToyServer
from tests.cache.toy_state import ToyCodec, ToyTarget, row
from zllm_ref.cache.restore import Restore, RestoreFailed
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.plan import plan_restore

A, B, C = list(range(20)), list(range(100, 120)), list(range(200, 220))


@pytest.mark.parametrize("num_stages", [1, 3])
def test_a_stage_is_waited_for_alone(tmp_path: Path, num_stages: int) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    server.settle()
    (entry,) = server.store.entries.values()
    gate = threading.Event()

    class SlowTarget(ToyTarget):
        def row_buffers(self, stage: int, start: int, num_rows: int) -> list[memoryview]:
            if stage == num_stages - 1:
                assert gate.wait(300)
            return list(super().row_buffers(stage, start, num_rows))

    target = SlowTarget(20, num_stages)
    restore = Restore(plan_restore(server.store, entry, 20, ToyCodec()), ToyCodec(), target, Files(), num_stages)
    thread = threading.Thread(target=restore.run)
    thread.start()
    try:
        for stage in range(num_stages - 1):
            restore.wait_stage(stage, 60)
            assert bytes(target.rows[stage]) == b"".join(payload_row(stage, n) for n in range(20))
        assert not restore.is_stage_done(num_stages - 1)
        assert not restore.is_drained
    finally:
        gate.set()
        thread.join()
    restore.wait_stage(num_stages - 1, 60)
    assert target.landed == list(range(num_stages))
    assert target.holds(A)


def payload_row(layer: int, position: int) -> bytes:
    return row(layer, A[: position + 1])


def test_a_stage_that_comes_too_late_cancels_the_restore_and_the_buffer_is_its_own_until_it_has_drained(tmp_path: Path) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    server.settle()
    (entry,) = server.store.entries.values()
    gate = threading.Event()

    class StuckTarget(ToyTarget):
        def row_buffers(self, stage: int, start: int, num_rows: int) -> list[memoryview]:
            if start == 8:
                gate.wait(300)
            return list(super().row_buffers(stage, start, num_rows))

    target = StuckTarget(20)
    restore = Restore(plan_restore(server.store, entry, 20, ToyCodec()), ToyCodec(), target, Files())
    thread = threading.Thread(target=restore.run)
    thread.start()
    with pytest.raises(RestoreFailed, match="did not come within"):
        restore.wait_stage(0, 0.05)
    assert not restore.is_drained, "a command may still be writing into it"
    assert not restore.wait_drained(0.01)

    gate.set()
    thread.join()
    assert restore.is_drained
    with pytest.raises(RestoreFailed, match="cancelled"):
        restore.wait_stage(0)
    assert restore.damaged is None, "nothing was wrong with the snapshot"


class Device(ToyTarget):
    """Another device: what it is sent arrives when the test says so."""

    def __init__(self, num_tokens: int, num_stages: int) -> None:
        super().__init__(num_tokens, num_stages)
        self.uploads = True
        self.read: list[int] = []
        self.is_read = [threading.Event() for _ in range(num_stages)]
        self.may_land = threading.Event()
        self.fails_at = -1

    def row_buffers(self, stage: int, start: int, num_rows: int) -> list[memoryview]:
        self.is_read[stage].set()
        return list(super().row_buffers(stage, start, num_rows))

    def stage_landed(self, stage: int) -> None:
        assert self.may_land.wait(300)
        if stage == self.fails_at:
            raise RuntimeError("the device went away")
        super().stage_landed(stage)


@pytest.mark.parametrize("fails_at", [-1, 0, 1])
def test_later_stages_are_read_while_earlier_ones_are_uploaded(tmp_path: Path, fails_at: int) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    server.settle()
    (entry,) = server.store.entries.values()
    device = Device(20, 3)
    device.fails_at = fails_at
    restore = Restore(plan_restore(server.store, entry, 20, ToyCodec()), ToyCodec(), device, Files(), 3)
    thread = threading.Thread(target=restore.run)

    thread.start()
    try:
        assert all(event.wait(60) for event in device.is_read), "all stages are read while the first upload still runs"
        assert not restore.is_stage_done(0)
        assert not restore.is_drained, "uploads are under way"
    finally:
        device.may_land.set()
        thread.join()

    assert restore.is_drained
    if fails_at < 0:
        assert device.landed == [0, 1, 2]
        assert device.holds(A)
        return
    assert device.landed == list(range(fails_at)), "nothing is uploaded after a failure"
    assert restore.failure == "the device went away"
    assert restore.damaged is None, "the file is not to blame"
    with pytest.raises(RestoreFailed, match="the device went away"):
        restore.wait_stage(fails_at)


def test_reading_is_left_when_computing_was_measured_to_be_faster(tmp_path: Path) -> None:
    server = ToyServer(tmp_path).restart()
    server.ask(A)
    server = server.restart()
    server.cache.rates.observe_restore(num_bytes=1000, seconds=10.0)
    server.cache.rates.observe_prefill(num_tokens=1000, seconds=0.001)

    assert server.ask([*A, 1])[0::2] == (0, None)
    assert server.cache.ssd_counts.recomputed == 1
    server = server.restart()
    server.cache.rates.observe_restore(num_bytes=10_000_000, seconds=0.01)
    server.cache.rates.observe_prefill(num_tokens=10, seconds=1.0)

    assert server.ask([*A, 1, 2])[0::2] == (21, "ssd")


def test_a_request_that_fails_while_its_snapshot_is_read_gives_everything_back(tmp_path: Path) -> None:
    server = ToyServer(tmp_path).restart()
    server.ask(A)
    server = server.restart(reader=HeldWorker())
    admission = server.admit([*A, 1])
    assert admission is not None
    restore = server.cache.start_restore(admission, ToyTarget(20))
    restore.cancel()

    server.cache.release(admission)
    server.cache.release(admission)
    server.cache.check()
    assert isinstance(server.reader, HeldWorker)
    server.reader.run_one()

    assert restore.is_drained
    assert restore.failure == "cancelled"
    assert not server.cache.finish_restore(admission, restore)
    server.cache.check()
    assert len(server.store.entries) == 1
