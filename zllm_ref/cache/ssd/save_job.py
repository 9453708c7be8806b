"""One save as file work: decided by the store before, published by the store afterwards, and safe to be killed in between."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zllm_ref.cache.key import KEY_BYTES
from zllm_ref.cache.snapshot import Bytes, StateCodec
from zllm_ref.cache.ssd.chunks import Encoding, encode_chunk, header_bytes
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.manifest import ChunkRecord, Manifest, encode_manifest
from zllm_ref.cache.ssd.places import chunk_name, identity_digest, manifest_name, remove_files, rows_of_block

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SaveRequest:
    """What to write down: a terminal's tokens and names, and its payloads, one a block and the fixed one last."""

    cache_id: str
    namespace: str
    round: int
    resident_bytes: int
    id_bytes: bytes
    payloads: tuple[object, ...]
    fixed: object | None
    is_unit: bool = False
    is_head: bool = True


@dataclass
class SaveJob:
    """One save, decided: what to delete first, which chunks to write, and the manifest that makes it exist."""

    request: SaveRequest
    root: Path
    files: Files
    codec: StateCodec
    encoding: Encoding
    identity: str
    block_tokens: int
    generation: int
    keys: tuple[bytes, ...]
    known: dict[bytes, ChunkRecord]
    doomed_manifests: tuple[Path, ...]
    doomed_chunks: tuple[Path, ...]
    reserved_bytes: int
    written: dict[bytes, ChunkRecord] = field(default_factory=dict)
    written_bytes: int = 0
    manifest: Manifest | None = None
    """Set when, and only when, the snapshot is on disk."""
    error: OSError | None = None
    seconds: float = 0.0
    """How long the file work took."""

    def run(self) -> None:
        """Does the file work; an OSError (full, read-only, gone) is kept in `error`, and what was begun is taken back."""
        started = time.perf_counter()
        try:
            remove_files(self.files, self.root, self.doomed_manifests, self.doomed_chunks)
            self._write_chunks()
            self._write_manifest()
        except OSError as error:
            self.error = error
            _log.warning("snapshot %s not saved: %s", self.request.cache_id, error)
            self._take_back()
        self.seconds = time.perf_counter() - started

    def _write_chunks(self) -> None:
        identity = identity_digest(self.identity)
        for index, key in enumerate(self.keys):
            if key in self.known or key in self.written:
                continue
            is_fixed = index == len(self.request.payloads)
            parts = self.codec.fixed_parts(self.request.fixed) if is_fixed else self.codec.row_parts(self.request.payloads[index])
            num_rows = 0 if is_fixed else rows_of_block(len(self.request.id_bytes), self.block_tokens, index)
            digest, buffers = encode_chunk(key, identity, num_rows, parts, self.encoding)
            num_bytes = self._write_file(self.root / "chunks" / chunk_name(key), buffers)
            self.written[key] = ChunkRecord(digest, num_bytes)
        if self.written:
            self.files.sync_directory(self.root / "chunks")

    def _write_manifest(self) -> None:
        chunks = tuple(self.known.get(key) or self.written[key] for key in self.keys)
        manifest = Manifest(
            generation=self.generation,
            cache_id=self.request.cache_id,
            identity=self.identity,
            namespace=self.request.namespace,
            round=self.request.round,
            is_unit=self.request.is_unit,
            is_head=self.request.is_head,
            resident_bytes=self.request.resident_bytes,
            block_tokens=self.block_tokens,
            has_fixed=self.request.fixed is not None,
            id_bytes=self.request.id_bytes,
            chunks=chunks,
        )
        self._write_file(self.root / "manifests" / manifest_name(self.generation), [encode_manifest(manifest)])
        self.files.sync_directory(self.root / "manifests")
        self.manifest = manifest

    def _write_file(self, path: Path, buffers: Sequence[Bytes]) -> int:
        """Writes beside its place, syncs, and renames into its place."""
        temporary = self.root / "temporary" / path.name
        descriptor = self.files.create(temporary)
        try:
            self.files.write(descriptor, buffers)
            self.files.sync(descriptor)
        finally:
            self.files.close(descriptor)
        self.files.rename(temporary, path)
        num_bytes = sum(memoryview(buffer).nbytes for buffer in buffers)
        self.written_bytes += num_bytes
        return num_bytes

    def _take_back(self) -> None:
        """Removes what this job wrote, as far as the disk lets us; the rest is swept when the store is opened again."""
        names = [self.root / "manifests" / manifest_name(self.generation)]
        names += [self.root / "chunks" / chunk_name(key) for key in self.written]
        names += [self.root / "temporary" / chunk_name(key) for key in self.keys]
        names.append(self.root / "temporary" / manifest_name(self.generation))
        try:
            for name in names:
                self.files.remove(name)
        except OSError as error:
            _log.warning("leftovers of snapshot %s stay until the next start: %s", self.request.cache_id, error)


def most_manifest_bytes(request: SaveRequest, identity: str, num_chunks: int) -> int:
    """An upper bound: numbers that are not known yet are taken at their longest."""
    blank = Manifest(
        generation=1 << 62,
        cache_id=request.cache_id,
        identity=identity,
        namespace=request.namespace,
        round=request.round,
        is_unit=False,
        is_head=False,
        resident_bytes=request.resident_bytes,
        block_tokens=1 << 31,
        has_fixed=request.fixed is not None,
        id_bytes=request.id_bytes,
        chunks=(ChunkRecord(bytes(KEY_BYTES), 0),) * num_chunks,
    )
    return len(encode_manifest(blank))


def most_chunk_bytes(request: SaveRequest, codec: StateCodec, block_tokens: int, index: int) -> int:
    """Size of chunk number `index` when nothing of it shrinks."""
    if index == len(request.payloads):
        sizes = codec.fixed_part_sizes()
    else:
        sizes = codec.row_part_sizes(rows_of_block(len(request.id_bytes), block_tokens, index))
    return header_bytes(len(sizes)) + sum(sizes)
