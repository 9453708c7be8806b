"""Files that claim to be huge: refused, or read in pieces, and memory stays small."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
import xxhash

from tests.cache.toy_state import open_store, reuse, save
from zllm_ref.cache.ssd.chunks import ChunkError, Encoding, header_bytes
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.manifest import MOST_BYTES, ChunkRecord
from zllm_ref.cache.ssd.reading import verify_chunk


def test_huge_files_cost_no_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sparse files: a terabyte costs whoever makes it nothing, and must cost us nothing either."""
    store = open_store(tmp_path)
    save(store, range(10), "cache_a")
    store.close()
    chunk = min((tmp_path / "chunks").iterdir())
    manifest = next((tmp_path / "manifests").iterdir())
    os.truncate(chunk, 1 << 40)
    (tmp_path / "manifests" / f"{7:016x}.manifest").touch()
    os.truncate(tmp_path / "manifests" / f"{7:016x}.manifest", 1 << 40)
    (tmp_path / "manifests" / f"{8:016x}.manifest").write_bytes(manifest.read_bytes())
    os.truncate(tmp_path / "manifests" / f"{8:016x}.manifest", MOST_BYTES)

    tracemalloc.start()
    again = open_store(tmp_path)
    reused = reuse(again, range(11))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert reused == 0
    assert peak < 300_000
    assert caplog.text.count("no snapshot") == 2


def test_a_chunk_of_a_terabyte_is_verified_in_pieces(tmp_path: Path) -> None:
    """A manifest and a header that agree on a huge part: whoever does not know the model must read it, but need not hold it."""
    size = 40 << 20
    path = tmp_path / "a.chunk"
    part = struct.pack("<QQQQ", size, size, xxhash.xxh3_64_intdigest(bytes(size)), Encoding.RAW)
    head = struct.pack("<8sIII16s16s", b"zllmchnk", 1, 1, 1, bytes(16), bytes(16)) + part
    digest = xxhash.xxh3_128_digest(head)
    path.write_bytes(head + digest)
    os.truncate(path, header_bytes(1) + size)

    tracemalloc.start()
    verify_chunk(Files(), path, bytes(16), bytes(16), ChunkRecord(digest, header_bytes(1) + size))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 3 << 20
    with open(path, "r+b") as file:
        file.seek(size - 5)
        file.write(b"x")
    with pytest.raises(ChunkError, match="checksum"):
        verify_chunk(Files(), path, bytes(16), bytes(16), ChunkRecord(digest, header_bytes(1) + size))
