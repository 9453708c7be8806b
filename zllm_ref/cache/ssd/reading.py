"""Reading chunks back: untrusted bytes into given buffers, or a ChunkError.

Nothing is allocated for a size that a file states. Rows that are not compressed go straight into the target's memory, are
verified there, and are worth nothing until then: whoever gets an error throws the whole buffer away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from zllm_ref.cache.ssd.chunks import (
    ChunkError,
    ChunkHeader,
    Encoding,
    Part,
    decode_part,
    header_bytes,
    parse_header,
    require_checksum,
    verify_part,
)
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.manifest import ChunkRecord
from zllm_ref.cache.ssd.places import chunk_name

MOST_PARTS = 1 << 16
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class ChunkRead:
    """A chunk to be read: where it lies, what it must be, and how many of its rows are wanted, at which position."""

    directory: Path
    key: bytes
    record: ChunkRecord
    start: int
    stored_rows: int
    wanted_rows: int
    part_sizes: tuple[int, ...]
    """Bytes of each part as the model's layout has them, for all stored rows."""

    @property
    def path(self) -> Path:
        return self.directory / chunk_name(self.key)

    @property
    def is_fixed(self) -> bool:
        return self.stored_rows == 0


def read_header(files: Files, chunk: ChunkRead, identity: bytes) -> ChunkHeader:
    """The checked header. Raises ChunkError, or OSError when the file is not there or not regular."""
    descriptor, size = files.open(chunk.path)
    try:
        if size != chunk.record.file_bytes:
            raise ChunkError(f"{chunk.path.name}: got {size} bytes, allowed {chunk.record.file_bytes}")
        data = bytearray(min(size, header_bytes(len(chunk.part_sizes))))
        files.read_into(descriptor, 0, [memoryview(data)])
        files.will_need(descriptor)
    finally:
        files.close(descriptor)
    return parse_header(
        bytes(data),
        key=chunk.key,
        identity=identity,
        num_rows=chunk.stored_rows,
        part_sizes=chunk.part_sizes,
        file_bytes=size,
        digest=chunk.record.digest,
    )


def read_parts(files: Files, chunk: ChunkRead, header: ChunkHeader, first: int, buffers: Sequence[memoryview]) -> None:
    """Fills `buffers` with the wanted rows of the parts from number `first` on, verified; raises ChunkError or OSError."""
    parts = header.parts[first : first + len(buffers)]
    if not parts:
        return
    wanted = [_wanted_bytes(chunk, part) for part in parts]
    if [len(buffer) for buffer in buffers] != wanted:
        raise ChunkError(f"{chunk.path.name}: got buffers of {[len(b) for b in buffers]} bytes, allowed {wanted}")
    # Read where the bytes belong, unless they must be decoded or cut first.
    straight = [part.encoding is Encoding.RAW and size == part.raw_bytes for part, size in zip(parts, wanted, strict=True)]
    places = [
        buffer if is_straight else memoryview(bytearray(part.encoded_bytes))
        for part, buffer, is_straight in zip(parts, buffers, straight, strict=True)
    ]
    descriptor, _ = files.open(chunk.path)
    try:
        files.read_into(descriptor, parts[0].offset, places)
    finally:
        files.close(descriptor)
    for part, buffer, place, is_straight in zip(parts, buffers, places, straight, strict=True):
        verify_part(part, place)
        if not is_straight:
            buffer[:] = memoryview(decode_part(part, place))[: len(buffer)]


def verify_chunk(files: Files, path: Path, key: bytes, identity: bytes | None, record: ChunkRecord) -> None:
    """Reads a chunk from end to end and checks it against itself and its record, without knowing the model.

    Raises ChunkError or OSError. Memory stays small, whatever the file says of itself.
    """
    descriptor, size = files.open(path)
    try:
        if size != record.file_bytes:
            raise ChunkError(f"{path.name}: got {size} bytes, allowed {record.file_bytes}")
        head = bytearray(min(size, header_bytes(0)))
        files.read_into(descriptor, 0, [memoryview(head)])
        num_parts = int.from_bytes(head[16:20], "little")
        if num_parts > MOST_PARTS or header_bytes(num_parts) > size:
            raise ChunkError(f"{path.name}: got {num_parts} parts, allowed what fits into {size} bytes")
        data = bytearray(header_bytes(num_parts))
        files.read_into(descriptor, 0, [memoryview(data)])
        num_rows = int.from_bytes(data[12:16], "little")
        header = parse_header(
            bytes(data),
            key=key,
            identity=identity if identity is not None else bytes(data[36:52]),
            num_rows=num_rows,
            part_sizes=None,
            file_bytes=size,
            digest=record.digest,
        )
        for part in header.parts:
            _verify_in_pieces(files, descriptor, part)
    finally:
        files.close(descriptor)


def _verify_in_pieces(files: Files, descriptor: int, part: Part) -> None:
    found = xxhash.xxh3_64()
    piece = memoryview(bytearray(min(part.encoded_bytes, _PIECE_BYTES)))
    for start in range(0, part.encoded_bytes, _PIECE_BYTES):
        wanted = piece[: min(_PIECE_BYTES, part.encoded_bytes - start)]
        files.read_into(descriptor, part.offset + start, [wanted])
        found.update(wanted)
    require_checksum(part, found.intdigest())


def _wanted_bytes(chunk: ChunkRead, part: Part) -> int:
    """The first rows of a part are its first bytes."""
    return part.raw_bytes if chunk.is_fixed else part.raw_bytes * chunk.wanted_rows // chunk.stored_rows
