"""Whatever lies in the directory: a miss or a refusal with a log line, the right rows or none, and no memory for lies."""

from __future__ import annotations

import json
import logging
import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import pytest
import xxhash
import zstandard

from tests.cache.toy_state import BLOCK, ToyCodec, ToyTarget, open_store, request, reuse, save
from zllm_ref.cache.restore import Restore
from zllm_ref.cache.ssd.chunks import (
    ChunkError,
    Encoding,
    Part,
    decode_part,
    encode_chunk,
    header_bytes,
    parse_header,
    verify_part,
)
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.manifest import ManifestError, parse_manifest
from zllm_ref.cache.ssd.plan import plan_restore
from zllm_ref.cache.ssd.reading import verify_chunk

PROMPT = range(BLOCK + 2)
KEY = b"k" * 16
IDENTITY = b"i" * 16


@pytest.fixture(params=[False, True], ids=["linear", "rings"])
def saved(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A closed store with one snapshot of one block and a half."""
    store = open_store(tmp_path / "ssd")
    save(store, PROMPT, "cache_a", has_fixed=request.param)
    store.close()
    return tmp_path / "ssd"


def files_of(root: Path) -> list[Path]:
    return sorted([*(root / "chunks").iterdir(), *(root / "manifests").iterdir()])


def reuse_after(saved: Path, change: Callable[[Path], None], scratch: Path) -> int:
    """Tokens reused from a copy of the store after the change; raises nothing, whatever the change was."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(saved, scratch)
    change(scratch)
    store = open_store(scratch)
    is_cuttable = not any(entry.manifest.has_fixed for entry in store.entries.values())
    length = reuse(store, [*PROMPT, 1], is_cuttable=is_cuttable)
    store.check()
    store.close()
    return length


def test_the_untouched_copy_is_a_hit(saved: Path, tmp_path: Path) -> None:
    assert reuse_after(saved, lambda _: None, tmp_path / "copy") == len(PROMPT)


def reuse_with(saved: Path, scratch: Path, file: Path, variants: Iterable[bytes]) -> Iterator[int]:
    """Tokens reused with each variant of one file's bytes in its place.

    Chunks need no new start of the store for that. Manifests do, and are parsed in memory but for every twentieth.
    """
    place = file.relative_to(saved)
    if place.parts[0] == "manifests":
        for number, data in enumerate(variants):
            if number % 20 == 0:
                yield reuse_after(saved, lambda root, data=data: (root / place).write_bytes(data), scratch)
                continue
            with pytest.raises(ManifestError):
                parse_manifest(data)
            yield 0
        return
    shutil.copytree(saved, scratch)
    store = open_store(scratch)
    is_cuttable = not any(entry.manifest.has_fixed for entry in store.entries.values())
    assert reuse(store, [*PROMPT, 1], is_cuttable=is_cuttable) == len(PROMPT)
    for data in variants:
        (scratch / place).write_bytes(data)
        yield reuse(store, [*PROMPT, 1], is_cuttable=is_cuttable)
    store.close()
    shutil.rmtree(scratch)


def test_every_truncation_is_a_miss(saved: Path, tmp_path: Path) -> None:
    for file in files_of(saved):
        data = file.read_bytes()
        lengths = list(reuse_with(saved, tmp_path / "copy", file, (data[:size] for size in range(len(data)))))

        assert lengths == [0] * len(data), file.name


def test_every_flipped_byte_is_a_miss(saved: Path, tmp_path: Path) -> None:
    for file in files_of(saved):
        data = file.read_bytes()
        flipped = (data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in range(len(data)))
        lengths = list(reuse_with(saved, tmp_path / "copy", file, flipped))

        assert lengths == [0] * len(data), file.name


def test_bytes_after_the_end_are_a_miss(saved: Path, tmp_path: Path) -> None:
    for place in [file.relative_to(saved) for file in files_of(saved)]:

        def append(root: Path, place: Path = place) -> None:
            with open(root / place, "ab") as stream:
                stream.write(b"\0")

        assert reuse_after(saved, append, tmp_path / "copy") == 0


def test_swapped_chunks_are_a_miss_although_each_is_whole(saved: Path, tmp_path: Path) -> None:
    chunks = [file.name for file in (saved / "chunks").iterdir()]
    for first in chunks:
        for second in chunks:

            def swap(root: Path, first: str = first, second: str = second) -> None:
                data = (root / "chunks" / first).read_bytes()
                (root / "chunks" / first).write_bytes((root / "chunks" / second).read_bytes())
                (root / "chunks" / second).write_bytes(data)

            assert reuse_after(saved, swap, tmp_path / "copy") == (len(PROMPT) if first == second else 0)


def test_a_chunk_of_another_namespace_or_other_weights_in_its_place_is_a_miss(tmp_path: Path) -> None:
    for name, namespace, identity in (("a", "a", "model"), ("b", "b", "model"), ("c", "a", "other weights")):
        store = open_store(tmp_path / name, identity=identity)
        save(store, PROMPT, f"cache_{name}", namespace=namespace)
        store.close()
    ours = sorted((tmp_path / "a" / "chunks").iterdir())
    for foreign in ("b", "c"):
        for other in (tmp_path / foreign / "chunks").iterdir():
            for mine in ours:
                if mine.stat().st_size == other.stat().st_size:
                    kept = mine.read_bytes()
                    mine.write_bytes(other.read_bytes())
                    store = open_store(tmp_path / "a")
                    assert reuse(store, [*PROMPT, 1], namespace="a") == 0
                    store.close()
                    mine.write_bytes(kept)
    assert reuse(open_store(tmp_path / "a"), [*PROMPT, 1], namespace="a") == len(PROMPT)


@pytest.mark.parametrize("what", ["missing", "link", "fifo", "directory", "device", "empty"])
def test_anything_but_the_regular_file_is_a_miss(saved: Path, tmp_path: Path, what: str) -> None:
    for place in [file.relative_to(saved) for file in files_of(saved)]:

        def replace(root: Path, place: Path = place) -> None:
            target = root / place
            data = target.read_bytes()
            target.unlink()
            if what == "link":
                (root.parent / "elsewhere").write_bytes(data)
                target.symlink_to(root.parent / "elsewhere")
            elif what == "fifo":
                os.mkfifo(target)
            elif what == "directory":
                target.mkdir()
            elif what == "device":
                target.symlink_to("/dev/zero")
            elif what == "empty":
                target.touch()

        assert reuse_after(saved, replace, tmp_path / "copy") == 0


def test_a_refused_chunk_takes_its_snapshots_with_it_and_is_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    entry = save(store, PROMPT, "cache_a")
    assert entry is not None
    save(store, [*PROMPT, 7, 7, 7], "cache_b")
    save(store, [9, 9, 9], "cache_c")
    victim = tmp_path / "chunks" / f"{entry.keys[0].hex()}.chunk"
    victim.write_bytes(b"\0" * victim.stat().st_size)

    codec, target = ToyCodec(), ToyTarget(len(PROMPT))
    restore = Restore(plan_restore(store, entry, len(PROMPT), codec), codec, target, Files())
    with caplog.at_level(logging.WARNING):
        restore.run()

    assert "cache_a refused" in caplog.text
    assert restore.damaged == entry.keys[0]
    assert store.remove_damaged(entry.keys[0]) == 2
    store.check()
    assert list(store.entries) == ["cache_c"]
    assert save(store, PROMPT, "cache_d") is not None
    assert reuse(store, [*PROMPT, 1]) == len(PROMPT)


def test_a_snapshot_of_other_row_sizes_is_a_miss(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    entry = save(store, PROMPT, "cache_a")
    assert entry is not None
    codec = ToyCodec(row_bytes=32)

    restore = Restore(plan_restore(store, entry, len(PROMPT), codec), codec, ToyTarget(100), Files())
    restore.run()

    assert restore.failure is not None
    assert "allowed 128" in restore.failure


def forged_headers() -> Iterator[tuple[str, bytes]]:
    """Headers whose own checksum is right and whose numbers are not, for a chunk of 4 rows and parts of 32 bytes."""
    huge = 1 << 50
    fields = {"magic": b"zllmchnk", "version": 1, "rows": 4, "parts": 3, "key": KEY, "identity": IDENTITY}
    for name, wrong in (
        ("magic", b"zllmchnX"),
        ("version", 2),
        ("rows", 5),
        ("rows", 2**32 - 1),
        ("parts", 2),
        ("parts", 2**32 - 1),
        ("key", b"x" * 16),
        ("identity", b"x" * 16),
    ):
        changed = {**fields, name: wrong}
        table = b"".join(struct.pack("<QQQQ", 32, 32, 0, 0) for _ in range(3))
        head = struct.pack("<8sIII16s16s", *changed.values()) + table
        yield f"{name}={wrong!r}", head
    for line in (
        (huge, 32, 0, 0),
        (32, huge, 0, 0),
        (32, 31, 0, 0),
        (32, 33, 0, 1),
        (32, 32, 0, 3),
        (huge, huge, 0, 0),
        (31, 31, 0, 0),
    ):
        table = b"".join(struct.pack("<QQQQ", *row) for row in (line, (32, 32, 0, 0), (32, 32, 0, 0)))
        yield f"part={line}", struct.pack("<8sIII16s16s", *fields.values()) + table


def test_a_header_with_wrong_numbers_is_refused_before_anything_is_allocated() -> None:
    for name, head in forged_headers():
        digest = xxhash.xxh3_128_digest(head)
        tracemalloc.start()
        with pytest.raises(ChunkError):
            parse_header(
                head + digest,
                key=KEY,
                identity=IDENTITY,
                num_rows=4,
                part_sizes=(32, 32, 32),
                file_bytes=header_bytes(3) + 96,
                digest=digest,
            )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000, f"{name}: {peak} bytes"


def test_a_true_header_under_another_digest_than_the_manifest_names_is_refused() -> None:
    digest, buffers = encode_chunk(KEY, IDENTITY, 4, [bytes(32)] * 3, Encoding.RAW)
    sizes = {"key": KEY, "identity": IDENTITY, "num_rows": 4, "part_sizes": (32, 32, 32), "file_bytes": header_bytes(3) + 96}

    assert parse_header(bytes(buffers[0]), **sizes, digest=digest).num_rows == 4
    with pytest.raises(ChunkError, match="digest in the manifest"):
        parse_header(bytes(buffers[0]), **sizes, digest=bytes(16))


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("num_bytes", [0, 1, 2, 3, 1000, 1001])
def test_a_part_that_shrinks_comes_back_to_the_byte(encoding: Encoding, num_bytes: int) -> None:
    raw = bytes(index % 256 if index % 2 else 7 for index in range(num_bytes))
    digest, buffers = encode_chunk(KEY, IDENTITY, 1, [raw], encoding)
    size = sum(len(buffer) for buffer in buffers)
    (part,) = parse_header(
        bytes(buffers[0]), key=KEY, identity=IDENTITY, num_rows=1, part_sizes=(num_bytes,), file_bytes=size, digest=digest
    ).parts

    verify_part(part, buffers[1])
    assert bytes(decode_part(part, buffers[1])) == raw
    if num_bytes >= 1000:
        assert part.encoding is encoding, "this one must have shrunk"


@pytest.mark.parametrize("encoding", [Encoding.ZSTD, Encoding.PLANES_ZSTD])
def test_a_frame_that_unpacks_to_more_is_refused_without_unpacking_it(encoding: Encoding) -> None:
    with_size = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    without_size = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50_000_000))
    cut = zstandard.ZstdCompressor().compress(bytes(32))[:-3]

    for data in (with_size, without_size, cut, b"", b"no frame at all"):
        tracemalloc.start()
        with pytest.raises(ChunkError):
            decode_part(Part(0, 32, len(data), 0, encoding), data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()


def manifest_bytes(root: Path) -> bytes:
    return next((root / "manifests").iterdir()).read_bytes()


def resealed(body: bytes) -> bytes:
    return body + blake2b(body, digest_size=16).digest()


def test_a_manifest_with_huge_counts_is_refused_before_anything_is_allocated(saved: Path) -> None:
    data = manifest_bytes(saved)
    for at in (12, 16, 20):  # bytes of fields, number of ids, number of chunks
        for wrong in (0, 1, 2**31, 2**32 - 1):
            forged = resealed(data[:at] + struct.pack("<I", wrong) + data[at + 4 : -16])
            tracemalloc.start()
            with pytest.raises(ManifestError):
                parse_manifest(forged)
            assert tracemalloc.get_traced_memory()[1] < 200_000
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("generation", -1),
        ("generation", "1"),
        ("generation", 2),
        ("cache_id", 5),
        ("is_head", 1),
        ("is_unit", 0),
        ("round", 1.5),
        ("block_tokens", 0),
        ("block_tokens", 1),
        ("has_fixed", None),
        ("namespace", ["a"]),
        ("surprise", 1),
    ],
)
def test_a_manifest_with_a_wrong_field_is_no_snapshot(saved: Path, tmp_path: Path, name: str, wrong: object) -> None:
    data = manifest_bytes(saved)
    field_bytes = struct.unpack_from("<I", data, 12)[0]
    fields = json.dumps({**json.loads(data[24 : 24 + field_bytes]), name: wrong}).encode()
    forged = resealed(data[:12] + struct.pack("<I", len(fields)) + data[16:24] + fields + data[24 + field_bytes : -16])

    def write(root: Path) -> None:
        next((root / "manifests").iterdir()).write_bytes(forged)

    assert reuse_after(saved, write, tmp_path / "copy") == 0


def test_two_manifests_that_disagree_about_a_chunk_do_not_both_count(saved: Path, tmp_path: Path) -> None:
    def add(root: Path) -> None:
        data = manifest_bytes(root)
        field_bytes = struct.unpack_from("<I", data, 12)[0]
        fields = {**json.loads(data[24 : 24 + field_bytes]), "generation": 2, "cache_id": "cache_b"}
        text = json.dumps(fields).encode()
        chunks = bytearray(data[24 + field_bytes : -16])
        chunks[-1] ^= 1
        body = data[:12] + struct.pack("<I", len(text)) + data[16:24] + text + bytes(chunks)
        (root / "manifests" / f"{2:016x}.manifest").write_bytes(resealed(body))

    assert reuse_after(saved, add, tmp_path / "copy") == len(PROMPT)


def test_verify_reads_every_chunk_to_its_end_without_knowing_the_model(tmp_path: Path) -> None:
    store = open_store(tmp_path, encoding=Encoding.ZSTD)
    save(store, PROMPT, "cache_a", has_fixed=True)

    for path, key, record in store.chunk_files():
        verify_chunk(Files(), path, key, None, record)
        data = path.read_bytes()
        for position in range(0, len(data), 7):
            changed = bytearray(data)
            changed[position] ^= 0x40
            path.write_bytes(changed)
            with pytest.raises((ChunkError, OSError)):
                verify_chunk(Files(), path, key, None, record)
        path.write_bytes(data)


def test_a_save_that_meets_a_foreign_file_in_its_place_takes_its_place(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    job = store.plan_save(request(PROMPT, "cache_a"), ToyCodec(), BLOCK)
    assert job is not None
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / "chunks" / f"{job.keys[0].hex()}.chunk").symlink_to(tmp_path / "elsewhere")

    job.run()
    store.finish_save(job)

    assert reuse(store, [*PROMPT, 1]) == len(PROMPT)
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
