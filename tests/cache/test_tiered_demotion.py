"""What goes to SSD, when, and who waits for it: writing behind the answer, dirty and clean victims, a disk that fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cache.toy_server import HeldWorker, ToyServer
from zllm_ref.cache.ssd.files import Files

A, B, C = list(range(20)), list(range(100, 120)), list(range(200, 220))


def test_a_dirty_victim_is_written_before_it_is_freed_and_the_request_waits_for_that(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, capacity_bytes=2500, options={"write_behind": False}, writer=writer)
    server.ask(A)

    assert server.admit(B, growth=5) is None, "found, and to be demoted first"
    assert len(writer.waiting) == 1
    assert server.cache.pinned_bytes > 0, "what is being written is no victim"
    assert server.admit(B, growth=5) is None
    writer.run_one()
    admission = server.admit(B, growth=5)

    assert admission is not None
    assert server.cache.counts.evictions == 1
    server.cache.release(admission)
    assert server.ask([*A, 1])[0::2] == (20, "ssd")


def test_a_clean_victim_is_freed_at_once(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, capacity_bytes=2500, writer=writer)
    server.ask(A)
    server.settle()

    admission = server.admit(B, growth=5)

    assert admission is not None
    assert writer.waiting == []


@pytest.mark.parametrize("write_behind", [True, False])
def test_a_budget_of_nothing_on_ssd_is_as_no_ssd(tmp_path: Path, write_behind: bool) -> None:
    server = ToyServer(tmp_path, capacity_bytes=2500, ssd_bytes=0, options={"write_behind": write_behind})
    server.ask(A)

    admission = server.admit(B, growth=5)

    assert admission is not None, "nothing runs and nothing can be written: it must not wait"
    server.cache.release(admission)
    assert server.ask([*A, 1])[0] == 0


def test_no_more_is_freed_than_is_needed(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, capacity_bytes=4600)
    for prompt in (A, B, C):
        server.ask(prompt)
    server.settle()

    server.ask(list(range(300, 320)))

    assert server.cache.counts.evictions == 1
    assert [server.ask([*prompt, 1])[2] for prompt in (B, C)] == ["resident", "resident"]


def test_a_disk_that_fails_costs_snapshots_and_never_a_request(tmp_path: Path) -> None:
    class BrokenFiles(Files):
        def create(self, path: Path) -> int:
            raise OSError(28, "No space left on device")

    server = ToyServer(tmp_path, capacity_bytes=2500)
    server.store.files = BrokenFiles()

    for prompt in (A, B, C, A):
        server.ask(prompt, [7])

    assert server.cache.ssd_counts.saves_failed >= 3
    assert server.cache.ssd_counts.saves == 0


def test_a_snapshot_is_invisible_while_it_is_written_and_two_requests_meanwhile_are_right(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, writer=writer)
    server.ask(A)
    server.cache.pump()
    assert len(writer.waiting) == 1

    looker = ToyServer(tmp_path / "other").store
    assert server.store.closest("", b"") is None
    assert list(server.store.entries) == []
    assert server.ask(A)[0::2] == (19, "resident")
    server.settle()

    assert len(server.store.entries) == 1
    assert list((tmp_path / "temporary").iterdir()) == []
    looker.close()


def test_a_longer_round_is_written_in_place_of_the_shorter_one_that_it_contains(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, writer=writer)
    server.ask(B)
    server.cache.pump()  # the writer is busy with B
    server.ask(A)
    server.ask([*A, 1, 2, 3])

    assert server.cache.num_dirty == 2, "B, and the longer A"
    server.settle()
    assert sorted(entry.manifest.length for entry in server.store.entries.values()) == [20, 23]


def test_two_requests_that_share_no_room_are_served_one_after_the_other(tmp_path: Path) -> None:
    """Two hits on SSD, each of which needs more than is free beside the other: both finish."""
    server = ToyServer(tmp_path).restart()
    server.ask(list(range(80)))
    server.ask(list(range(100, 180)))
    server = server.restart(capacity_bytes=170 * 48)
    waiting = [list(range(160)), [*range(100, 180), *range(500, 540)]]

    for _ in range(20):
        admitted = [(ids, admission) for ids in waiting if (admission := server.admit(ids)) is not None]
        server.cache.pump()
        for ids, admission in admitted:
            assert server.fill(admission, ids) == 80
            server.cache.release(admission)
            waiting.remove(ids)
        server.cache.check()

    assert waiting == []


def test_the_shutdown_writes_what_is_dirty(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, options={"write_behind": False})
    server.ask(A)
    server.cache.pump()
    assert server.cache.num_dirty == 1
    assert not server.cache.is_writing

    server.cache.write_all()
    server = server.restart()

    assert server.ask([*A, 1])[0::2] == (20, "ssd")


def test_wake_is_called_when_there_is_something_to_pump(tmp_path: Path) -> None:
    woken: list[float] = []
    server = ToyServer(tmp_path, options={"wake": lambda: woken.append(time.monotonic())})

    server.ask(A)
    server.cache.pump()

    assert len(woken) == 1
