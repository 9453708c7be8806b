from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zllm_ref.server.response_store import ResponseStore, StoredFrame, StoredResponse


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def store(directory: Path | None = None, clock: Clock | None = None, max_bytes: int = 1 << 20) -> ResponseStore:
    return ResponseStore(directory, ttl_seconds=100, max_bytes=max_bytes, clock=clock or Clock())


def row(identity: str, previous: str | None = None, owner: str = "", body: str = '{"output":[]}') -> StoredResponse:
    return StoredResponse(identity, owner, previous, "completed", False, body, "[]", f"cache of {identity}")


def test_a_chain_is_rebuilt_oldest_first() -> None:
    kept = store()
    for one in (row("a"), row("b", "a"), row("c", "b"), row("fork", "a")):
        kept.put(one)

    assert [found.id for found in kept.chain("c", "") or ()] == ["a", "b", "c"]
    assert [found.id for found in kept.chain("fork", "") or ()] == ["a", "fork"]
    assert kept.get("c", "") == row("c", "b")


def test_a_row_is_invisible_to_every_other_owner() -> None:
    kept = store()
    kept.put(row("a", owner="one"))

    assert kept.get("a", "two") is None
    assert kept.chain("a", "two") is None
    assert not kept.delete("a", "two")
    assert kept.get("a", "one") is not None


def test_a_chain_with_a_deleted_link_is_no_chain() -> None:
    kept = store()
    kept.put(row("a"))
    kept.put(row("b", "a"))

    assert kept.delete("a", "")

    assert kept.chain("b", "") is None
    assert kept.get("b", "") is not None


def test_a_chain_with_an_expired_link_is_no_chain_before_anybody_clears_up() -> None:
    clock = Clock()
    kept = store(clock=clock)
    kept.put(row("a"))
    clock.now += 60
    kept.put(row("b", "a"))
    clock.now += 60

    assert kept.chain("b", "") is None
    assert kept.get("b", "") is not None
    assert kept.total_bytes() == 2 * row("a").size, "nothing was cleared up yet"


def test_what_is_not_used_expires_and_what_is_used_keeps_its_beginning() -> None:
    clock = Clock()
    kept = store(clock=clock)
    kept.put(row("a"))
    kept.put(row("b", "a"))
    kept.put(row("idle"))
    clock.now += 90
    assert kept.chain("b", "") is not None
    clock.now += 90

    assert kept.get("idle", "") is None
    assert kept.chain("b", "") is not None
    kept.put(row("c"))
    assert kept.total_bytes() == 3 * row("a").size


def test_the_least_recently_used_go_when_the_file_outgrows_its_limit() -> None:
    clock = Clock()
    kept = store(clock=clock, max_bytes=3 * row("a").size)
    for name in "abc":
        clock.now += 1
        kept.put(row(name))
    kept.chain("a", "")
    clock.now += 1
    kept.put(row("d"))

    assert [name for name in "abcd" if kept.get(name, "")] == ["a", "c", "d"]
    assert kept.total_bytes() <= 3 * row("a").size


def test_frames_live_and_die_with_their_response() -> None:
    kept = store()
    kept.put(row("a"))
    kept.add_frames("a", [StoredFrame(0, "x", "{}"), StoredFrame(1, None, "[]")])
    kept.add_frames("unknown", [StoredFrame(0, "x", "{}")])

    assert kept.frames("a") == [StoredFrame(0, "x", "{}"), StoredFrame(1, None, "[]")]
    kept.delete("a", "")
    assert kept.frames("a") == []


def test_the_sealing_key_is_made_once(tmp_path: Path) -> None:
    first = store(tmp_path)
    key = first.secret(lambda: b"1" * 32)
    first.close()

    assert store(tmp_path).secret(lambda: b"2" * 32) == key == b"1" * 32


def test_what_was_written_survives_a_killed_process(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from zllm_ref.server.response_store import *\n"
        "kept = ResponseStore(pathlib.Path(sys.argv[1]), ttl_seconds=100, max_bytes=1<<20, clock=lambda: 1000.0)\n"
        "kept.put(StoredResponse('a', '', None, 'completed', False, '{}', '[]'))\n"
        "print('kept', flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"kept\n"
        process.send_signal(signal.SIGKILL)

    assert store(tmp_path).get("a", "") is not None


def test_a_broken_transaction_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store()

    def fail(_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(kept, "_shrink", fail)
    with pytest.raises(OSError, match="disk full"):
        kept.put(row("a"))

    assert kept.get("a", "") is None
