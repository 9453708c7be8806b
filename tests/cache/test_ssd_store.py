"""The directory of snapshots: what is saved comes back, in this process and the next, within its budget."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cache.toy_state import BLOCK, ToyCodec, open_store, request, reuse, save
from zllm_ref.cache.snapshot import Bytes
from zllm_ref.cache.ssd.chunks import Encoding
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.store import StoreUnusable


def test_a_snapshot_comes_back_in_the_next_process_with_all_that_its_manifest_says(tmp_path: Path) -> None:
    store = open_store(tmp_path / "ssd")
    save(store, range(10), "cache_a", namespace="tenant")
    assert reuse(store, range(11), "tenant") == 10
    store.close()

    again = open_store(tmp_path / "ssd")

    assert reuse(again, range(11), "tenant") == 10
    (entry,) = again.entries.values()
    manifest = entry.manifest
    assert (manifest.cache_id, manifest.namespace, manifest.generation, manifest.length) == ("cache_a", "tenant", 1, 10)
    assert (manifest.resident_bytes, manifest.is_head, manifest.has_fixed) == (480, True, False)
    again.check()


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("has_fixed", [False, True], ids=["linear", "rings"])
def test_every_length_comes_back_in_every_encoding(tmp_path: Path, encoding: Encoding, has_fixed: bool) -> None:
    for length in range(1, 3 * BLOCK + 2):
        store = open_store(tmp_path / f"{length}", encoding=encoding)
        save(store, range(length), "cache_a", has_fixed=has_fixed)

        assert reuse(store, range(length + 1), is_cuttable=not has_fixed) == length
        store.close()


def test_a_linear_snapshot_is_cut_at_any_token_and_a_fixed_one_at_none(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, range(10), "cache_a")
    save(store, range(100, 110), "cache_b", has_fixed=True)

    assert [reuse(store, [*range(n), 99, 98]) for n in range(1, 11)] == list(range(1, 11))
    assert reuse(store, range(10)) == 9, "the last token is computed"
    assert reuse(store, range(100, 110), is_cuttable=False) == 0
    assert reuse(store, [*range(100, 109), 5, 5], is_cuttable=False) == 0
    assert reuse(store, range(100, 111), is_cuttable=False) == 10


def test_the_exact_id_comes_first_and_a_wrong_or_foreign_one_changes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, range(4), "cache_short")
    save(store, range(9), "cache_long")
    save(store, range(9), "cache_foreign", namespace="other")

    assert reuse(store, range(12), cache_id="cache_short") == 4
    assert reuse(store, range(12), cache_id="cache_foreign") == 9
    assert reuse(store, range(12), cache_id="cache_nobody") == 9
    assert reuse(store, [7, 7, 7], cache_id="cache_long") == 0
    assert reuse(store, range(12), namespace="third", cache_id="cache_long") == 0


def test_snapshots_share_the_chunks_of_their_common_blocks(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, range(8), "cache_trunk")
    trunk = {file: file.stat().st_ino for file in (tmp_path / "chunks").iterdir()}
    save(store, [*range(8), 50], "cache_a")
    save(store, [*range(8), 60], "cache_b")

    assert len(trunk) == 2
    assert len(list((tmp_path / "chunks").iterdir())) == 4
    assert {file: file.stat().st_ino for file in trunk} == trunk, "written again"

    store.remove([store.entries["cache_trunk"], store.entries["cache_a"]])
    store.flush()
    store.check()
    assert len(list((tmp_path / "chunks").iterdir())) == 3
    assert reuse(store, [*range(8), 60, 61]) == 9


def test_the_budget_takes_the_least_recently_used_and_counts_what_is_on_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path, capacity_bytes=3200)
    for number in range(8):
        save(store, range(number * 100, number * 100 + 10), f"cache_{number}")
        store.touch(store.entries["cache_0"])
        store.flush()
        on_disk = sum(file.stat().st_size for name in ("chunks", "manifests") for file in (tmp_path / name).iterdir())
        assert on_disk == store.used_bytes <= 3200

    assert list(store.entries)[-2:] == ["cache_7", "cache_0"]
    assert reuse(store, range(12)) == 10
    assert reuse(store, range(100, 112)) == 0
    assert store.evictions > 0


def test_a_smaller_budget_takes_the_oldest_away_at_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(3):
        save(store, range(number * 100, number * 100 + 10), f"cache_{number}")
    third = store.used_bytes // 3
    store.close()

    looker = open_store(tmp_path, capacity_bytes=third * 2 + 10, read_only=True)
    assert len(looker.entries) == 3
    again = open_store(tmp_path, capacity_bytes=third * 2 + 10)

    assert list(again.entries) == ["cache_1", "cache_2"]
    assert len(list((tmp_path / "manifests").iterdir())) == 2
    again.check()


def test_what_can_never_fit_evicts_nobody(tmp_path: Path) -> None:
    store = open_store(tmp_path, capacity_bytes=3200)
    save(store, range(10), "cache_a")

    assert save(store, range(1000, 1200), "cache_big") is None

    assert list(store.entries) == ["cache_a"]


def test_a_snapshot_that_is_being_read_is_not_evicted(tmp_path: Path) -> None:
    store = open_store(tmp_path, capacity_bytes=1650)
    entry = save(store, range(10), "cache_a")
    assert entry is not None
    entry.readers += 1

    assert save(store, range(100, 110), "cache_b") is None
    entry.readers -= 1
    assert save(store, range(100, 110), "cache_b") is not None


def test_older_rounds_are_given_up_except_where_another_conversation_forks(tmp_path: Path) -> None:
    store = open_store(tmp_path, prefix_rounds=1)
    for length in (3, 6, 9, 12):
        save(store, range(length), f"cache_{length}", has_fixed=True)
    assert list(store.entries) == ["cache_9", "cache_12"]

    save(store, [*range(9), 77], "cache_fork", has_fixed=True)
    for length in (15, 18, 21):
        save(store, range(length), f"cache_{length}", has_fixed=True)

    assert sorted(store.entries) == ["cache_18", "cache_21", "cache_9", "cache_fork"]


def test_a_unit_on_ssd_goes_with_its_round_and_counts_for_none(tmp_path: Path) -> None:
    """Three snapshots a round, as states that cannot be cut have them: still two whole rounds stay."""
    store = open_store(tmp_path, prefix_rounds=2)

    for number in range(1, 6):
        save(store, range(10 * number - 2), f"fork_{number}", is_unit=True)
        save(store, range(10 * number - 1), f"prompt_{number}", is_unit=True)
        save(store, range(10 * number), f"end_{number}")

    rounds = {int(cache_id[-1]) for cache_id in store.entries}
    assert [cache_id for cache_id in store.entries if cache_id.startswith("end")] == ["end_3", "end_4", "end_5"]
    assert rounds == {3, 4, 5}
    assert sum(cache_id.startswith("prompt") for cache_id in store.entries) == 3


@pytest.mark.parametrize("identity", ["other weights", "model, float32", "model, rope factor 2"])
def test_another_identity_finds_nothing_and_leaves_everything(tmp_path: Path, identity: str) -> None:
    store = open_store(tmp_path)
    save(store, range(10), "cache_a")
    store.close()

    other = open_store(tmp_path, identity=identity)
    assert reuse(other, range(11)) == 0
    assert reuse(other, range(11), cache_id="cache_a") == 0
    save(other, range(10), "cache_b")
    assert reuse(other, range(11)) == 10
    other.close()

    back = open_store(tmp_path)
    assert reuse(back, range(11)) == 10
    assert len(back.entries) == 2


def test_the_same_tokens_are_saved_once_and_saved_again_after_they_were_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = save(store, range(10), "cache_a")
    assert first is not None
    assert save(store, range(10), "cache_b") is None

    store.remove([first])
    assert save(store, range(10), "cache_c") is not None
    assert reuse(store, range(11)) == 10
    store.close()
    assert reuse(open_store(tmp_path), range(11)) == 10


def test_a_second_process_on_the_directory_is_told_who_owns_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    script = (
        "import sys; from pathlib import Path; from tests.cache.toy_state import open_store\n"
        "try: open_store(Path(sys.argv[1]))\n"
        "except OSError as error: print(error); sys.exit(3)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )

    assert result.returncode == 3
    assert f"in use by process {os.getpid()}" in result.stdout
    store.close()
    open_store(tmp_path).close()


def test_looking_without_the_lock_changes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, range(10), "cache_a")
    (tmp_path / "temporary" / "half.chunk").write_bytes(b"being written")

    looker = open_store(tmp_path, read_only=True)

    assert list(looker.entries) == ["cache_a"]
    looker.close()
    assert (tmp_path / "temporary" / "half.chunk").exists()
    with pytest.raises(StoreUnusable, match="cannot be used"):
        open_store(tmp_path / "nothing here", read_only=True)


def test_leftovers_of_a_crash_are_swept_at_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, range(10), "cache_a")
    store.close()
    for name in ("temporary/x.chunk", f"chunks/{'ab' * 16}.chunk", "manifests/00000000000000ff.manifest"):
        (tmp_path / name).write_bytes(b"leftover")

    again = open_store(tmp_path)

    assert list((tmp_path / "temporary").iterdir()) == []
    assert len(list((tmp_path / "chunks").iterdir())) == 3
    assert len(list((tmp_path / "manifests").iterdir())) == 1
    assert reuse(again, range(11)) == 10


class RefusingFiles(Files):
    """A disk that begins to refuse writes at some point."""

    def __init__(self, error: int) -> None:
        self.error = error
        self.refuses = False
        self.writes = 0

    def write(self, descriptor: int, buffers: Sequence[Bytes]) -> None:
        self.writes += 1
        if self.refuses and self.writes > 1:
            super().write(descriptor, [memoryview(buffers[0])[:7]])
            raise OSError(self.error, os.strerror(self.error))
        super().write(descriptor, buffers)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_costs_the_snapshot_and_nothing_else(
    tmp_path: Path, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = RefusingFiles(error)
    store = open_store(tmp_path, files=files)
    save(store, range(10), "cache_a")
    used = store.used_bytes
    files.refuses, files.writes = True, 0

    with caplog.at_level(logging.WARNING):
        assert save(store, range(100, 110), "cache_b") is None

    assert "cache_b not saved" in caplog.text
    assert store.used_bytes == used
    assert list((tmp_path / "temporary").iterdir()) == []
    assert reuse(store, range(11)) == 10
    files.refuses = False
    assert save(store, range(100, 110), "cache_c") is not None
    assert reuse(store, range(100, 111)) == 10


def test_a_directory_that_cannot_be_made_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    with pytest.raises(StoreUnusable, match="choose a directory"):
        open_store(tmp_path / "file")
    with pytest.raises(StoreUnusable, match="choose a directory"):
        open_store(tmp_path / "file" / "below")


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_disk_that_lets_nothing_be_made_is_refused_with_advice(tmp_path: Path, error: int) -> None:
    class ReadOnlyFiles(Files):
        def make_directory(self, path: Path) -> None:
            raise OSError(error, os.strerror(error))

    with pytest.raises(StoreUnusable, match="choose a directory that this user may write to"):
        open_store(tmp_path / "ssd", files=ReadOnlyFiles())


def test_a_link_in_place_of_a_room_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ssd").mkdir()
    (tmp_path / "ssd" / "chunks").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreUnusable, match="allowed a directory"):
        open_store(tmp_path / "ssd")


def test_a_manifest_of_a_later_version_is_left_alone_with_all_chunks(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    save(store, range(10), "cache_a")
    store.close()
    manifest = next((tmp_path / "manifests").iterdir())
    data = bytearray(manifest.read_bytes())
    data[8] += 1
    manifest.write_bytes(data)

    again = open_store(tmp_path)

    assert reuse(again, range(11)) == 0
    assert manifest.exists()
    assert len(list((tmp_path / "chunks").iterdir())) == 3
    again.close()
    data[8] -= 1
    manifest.write_bytes(data)
    assert reuse(open_store(tmp_path), range(11)) == 10


def test_a_save_is_invisible_until_it_is_finished(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    job = store.plan_save(request(range(10), "cache_a"), ToyCodec(), BLOCK)
    assert job is not None

    assert reuse(store, range(11)) == 0
    job.run()
    assert reuse(store, range(11)) == 0
    store.finish_save(job)

    assert reuse(store, range(11)) == 10
