"""Pulling the plug at every system call of a save: afterwards the old state or the new one is there, never a mix.

Two deaths are different. A killed process leaves all that it did (the system writes it out later). A power failure leaves
what was synced, and of the rest any part: here the worst choices, per directory and for contents, are all tried.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cache.toy_state import QuickFiles, open_store, reuse, save
from zllm_ref.cache.snapshot import Bytes
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.store import SnapshotStore

OLD = range(10)
NEW = [*range(6), *range(50, 60)]
DISTANT = range(200, 214)


class Death(BaseException):
    """The process ends here: no handler of the code under test may see it as an error."""


class MortalFiles(QuickFiles):
    """Counts system calls, and dies before or in the midst of the one with a given number (after it is before the next)."""

    def __init__(self, dies_at: int = -1, moment: str = "before") -> None:
        self.dies_at = dies_at
        self.moment = moment
        self.calls = 0
        self.is_dead = False
        self.descriptors: list[int] = []

    def mortal(self, call: Callable[[], None], half: Callable[[], None] | None = None) -> None:
        if self.is_dead:
            raise Death
        number, self.calls = self.calls, self.calls + 1
        if number != self.dies_at:
            call()
            return
        self.is_dead = True
        if self.moment == "midst" and half is not None:
            half()
        for descriptor in self.descriptors:
            os.close(descriptor)
        raise Death

    def create(self, path: Path) -> int:
        opened: list[int] = []
        self.mortal(lambda: opened.append(Files.create(self, path)))
        self.descriptors += opened
        return opened[0]

    def write(self, descriptor: int, buffers: Sequence[Bytes]) -> None:
        whole = b"".join(buffers)
        self.mortal(
            lambda: Files.write(self, descriptor, buffers), lambda: Files.write(self, descriptor, [whole[: len(whole) // 2]])
        )

    def sync(self, descriptor: int) -> None:
        self.mortal(lambda: None)

    def close(self, descriptor: int) -> None:
        if not self.is_dead and descriptor in self.descriptors:
            self.descriptors.remove(descriptor)
        if not self.is_dead:
            Files.close(self, descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self.mortal(lambda: Files.rename(self, source, target))

    def sync_directory(self, path: Path) -> None:
        self.mortal(lambda: None)

    def remove(self, path: Path) -> None:
        self.mortal(lambda: Files.remove(self, path))


class PowerFiles(MortalFiles):
    """Also knows what is durable: contents by the last sync of the file, names by the last sync of the directory."""

    def __init__(self, dies_at: int = -1, moment: str = "before") -> None:
        super().__init__(dies_at, moment)
        self.synced: dict[int, bytes] = {}
        self.durable_names: dict[Path, dict[str, int]] = {}
        self.paths: dict[int, Path] = {}

    def begin(self, root: Path) -> None:
        """All that lies there now is durable."""
        for directory in (root / "chunks", root / "manifests"):
            self.durable_names[directory] = {file.name: file.stat().st_ino for file in directory.iterdir()}
            self.synced.update({file.stat().st_ino: file.read_bytes() for file in directory.iterdir()})

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        size = os.fstat(descriptor).st_size
        reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        self.synced[os.fstat(descriptor).st_ino] = os.pread(reader, size, 0)
        os.close(reader)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.durable_names[path] = {file.name: file.stat().st_ino for file in path.iterdir()}

    def leave(self, root: Path, after: Path, names_survive: dict[str, bool], contents_survive: bool) -> None:
        """Builds what the disk may hold after the failure."""
        (after / "temporary").mkdir(parents=True)
        alive = {}
        for name in ("chunks", "manifests"):
            alive.update({file.stat().st_ino: file.read_bytes() for file in (root / name).iterdir()})
        for name, survives in names_survive.items():
            (after / name).mkdir()
            durable = self.durable_names[root / name]
            current = {file.name: file.stat().st_ino for file in (root / name).iterdir()}
            for file_name, inode in (current if survives else durable).items():
                unsynced = alive.get(inode, b"") if contents_survive else b""
                (after / name / file_name).write_bytes(self.synced.get(inode, unsynced))


def is_old_or_new(root: Path) -> str:
    """Opens what a death left, checks every row of it, and says which of the two states it is."""
    store = open_store(root)
    store.check()
    old, new = reuse(store, [*OLD, 1]), reuse(store, [*NEW, 1])
    assert reuse(store, [*DISTANT, 1]) in (0, len(DISTANT))
    assert old in (0, 6, len(OLD))
    assert new in (0, 6, len(NEW))
    for name, key, record in store.chunk_files():
        assert name.stat().st_size == record.file_bytes, key
    assert list((root / "temporary").iterdir()) == []
    assert len(list((root / "chunks").iterdir())) == len(list(store.chunk_files())), "leftovers"
    assert len(list((root / "manifests").iterdir())) == len(store.entries)
    assert save(store, range(300, 311), "cache_next") is not None
    assert reuse(store, range(300, 312)) == 11
    store.close()
    return f"{int(old == len(OLD))}{int(new == len(NEW))}"


def plain_save(store: SnapshotStore) -> None:
    save(store, NEW, "cache_new")


def save_that_evicts(store: SnapshotStore) -> None:
    store.capacity_bytes = store.used_bytes + 300
    save(store, NEW, "cache_new")


SCENES = {"into a free store": plain_save, "with a victim": save_that_evicts}
ALLOWED = {"into a free store": {"10", "11"}, "with a victim": {"10", "00", "01", "11"}}


def deaths(
    scene: str, kind: type[MortalFiles], moments: Sequence[str], tmp_path: Path
) -> Iterator[tuple[str, Path, MortalFiles]]:
    """The scene once for every system call and moment; yields after each death."""
    number = 0
    for moment in moments:
        dies_at = 0
        while True:
            root = tmp_path / str(number)
            number += 1
            store = open_store(root)
            save(store, OLD, "cache_old")
            save(store, DISTANT, "cache_distant")
            store.touch(store.entries["cache_old"])
            store.entries.move_to_end("cache_old", last=scene == "into a free store")
            files = kind(dies_at, moment)
            if isinstance(files, PowerFiles):
                files.begin(root)
            store.files = files
            try:
                SCENES[scene](store)
            except Death:
                store.files = QuickFiles()
                os.close(store._lock)
                yield f"{moment} call {dies_at}", root, files
                dies_at += 1
                continue
            assert not files.is_dead
            assert files.calls > 15, "the scene made no save"
            store.close()
            break


@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_at_any_system_call_leaves_the_old_or_the_new(scene: str, tmp_path: Path) -> None:
    seen = set()
    for where, root, _ in deaths(scene, MortalFiles, ("before", "midst"), tmp_path):
        state = is_old_or_new(root)
        assert state in ALLOWED[scene], where
        seen.add(state)

    assert seen >= {"10", "11" if scene == "into a free store" else "01"}, "both sides of the switch must have been seen"


@pytest.mark.parametrize("scene", SCENES)
def test_a_power_failure_at_any_system_call_leaves_the_old_or_the_new(scene: str, tmp_path: Path) -> None:
    for where, root, files in deaths(scene, PowerFiles, ("before",), tmp_path):
        assert isinstance(files, PowerFiles)
        for number, (chunk_names, manifest_names, contents) in enumerate(product([False, True], repeat=3)):
            after = Path(f"{root}-{number}")
            files.leave(root, after, {"chunks": chunk_names, "manifests": manifest_names}, contents)
            state = is_old_or_new(after)
            assert state in ALLOWED[scene], f"{where}, survivors: {chunk_names=} {manifest_names=} {contents=}"


def test_kills_at_random_moments_lose_no_finished_snapshot(tmp_path: Path) -> None:
    """The child is killed a moment after it has reported so many snapshots: a slow machine gets no less done."""
    generator = random.Random(20)
    finished = 0
    store = open_store(tmp_path / "ssd")
    store.close()
    num_kills = 200 if settings.get_current_profile_name() == "nightly" else 20
    for round_number in range(num_kills):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            save_until_killed(tmp_path / "ssd", round_number, writer)
        os.close(writer)
        os.read(reader, 1)  # the child has opened the store
        reports = b"".join(os.read(reader, 1) for _ in range(generator.randrange(4)))
        time.sleep(generator.random() * 0.004)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reports += os.read(reader, 4096)
        os.close(reader)

        store = open_store(tmp_path / "ssd")
        store.check()
        assert list((tmp_path / "ssd" / "temporary").iterdir()) == []
        for number in range(len(reports)):
            ids = ids_of(round_number, number)
            assert reuse(store, [*ids, 1]) == len(ids), f"round {round_number}: snapshot {number} was reported as saved"
        finished += len(reports)
        store.remove(list(store.entries.values()))
        store.close()
    assert finished > num_kills, "the kills came before anything was saved"


def ids_of(round_number: int, number: int) -> list[int]:
    return [round_number, number, *range(number, number + 9)]


def save_until_killed(root: Path, round_number: int, report: int) -> None:
    """In the child: one byte when the store is open, one more for each snapshot that is finished."""
    try:
        store = open_store(root)
        os.write(report, b"o")
        for number in range(40):
            if save(store, ids_of(round_number, number), f"cache_{round_number}_{number}") is not None:
                os.write(report, b"s")
        time.sleep(300)
    finally:
        os._exit(1)
