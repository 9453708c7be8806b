"""One chunk: the parts of one block (or of the fixed tensors), each with its own checksum, behind a header with another.

    magic version rows parts   key   identity   | raw  encoded  checksum  encoding | × parts | header checksum | part bytes ...
    8     4       4    4       16    16           8    8        8         8                   16

The key is the digest of identity, namespace and every token up to the block's end, so a chunk can stand only in its own
place. Checksums are over the encoded bytes: nothing unverified reaches a decoder, and a decoder never writes more than the
size that the model's layout gives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import xxhash
import zstandard

from zllm_ref.cache.snapshot import Bytes

MAGIC = b"zllmchnk"
VERSION = 1
DIGEST_BYTES = 16
_HEAD = struct.Struct("<8sIII16s16s")
_PART = struct.Struct("<QQQQ")
_ZSTD_LEVEL = 1


class ChunkError(ValueError):
    """The file is not the chunk that it should be. Somebody else's bytes: a miss, never a crash."""


class Encoding(IntEnum):
    """How a part's bytes are written."""

    RAW = 0
    ZSTD = 1
    PLANES_ZSTD = 2
    """All even bytes, then all odd bytes (the two halves of 16-bit numbers), then zstd."""


@dataclass(frozen=True)
class Part:
    """One line of the header's table."""

    offset: int
    raw_bytes: int
    encoded_bytes: int
    checksum: int
    encoding: Encoding


@dataclass(frozen=True)
class ChunkHeader:
    """A header that was checked; `digest` stands for the whole chunk, because it covers the checksum of every part."""

    digest: bytes
    num_rows: int
    parts: tuple[Part, ...]


def header_bytes(num_parts: int) -> int:
    """Size of the header of a chunk with that many parts."""
    return _HEAD.size + num_parts * _PART.size + DIGEST_BYTES


def encode_chunk(
    key: bytes, identity: bytes, num_rows: int, parts: Sequence[Bytes], encoding: Encoding
) -> tuple[bytes, list[Bytes]]:
    """The header's digest, and the buffers to write: header first, then the parts. A part that does not shrink stays raw."""
    encoded = [_encode(part, encoding) for part in parts]
    table = b"".join(
        _PART.pack(len(memoryview(part).cast("B")), len(memoryview(data).cast("B")), xxhash.xxh3_64_intdigest(data), used)
        for part, (used, data) in zip(parts, encoded, strict=True)
    )
    head = _HEAD.pack(MAGIC, VERSION, num_rows, len(parts), key, identity) + table
    digest = xxhash.xxh3_128_digest(head)
    return digest, [head + digest, *(data for _, data in encoded)]


def parse_header(
    data: bytes, *, key: bytes, identity: bytes, num_rows: int, part_sizes: Sequence[int] | None, file_bytes: int, digest: bytes
) -> ChunkHeader:
    """Checks every field against what is expected; raises ChunkError. `part_sizes` None: only against the file's own size."""
    if len(data) < _HEAD.size:
        raise ChunkError(f"header: got {len(data)} bytes, allowed at least {_HEAD.size}")
    magic, version, rows, num_parts, stored_key, stored_identity = _HEAD.unpack_from(data)
    for name, got, allowed in (
        ("magic", magic, MAGIC),
        ("version", version, VERSION),
        ("rows", rows, num_rows),
        ("key", stored_key, key),
        ("identity", stored_identity, identity),
        ("number of parts", num_parts, num_parts if part_sizes is None else len(part_sizes)),
        ("header size", len(data), header_bytes(num_parts)),
        ("header checksum", data[-DIGEST_BYTES:], xxhash.xxh3_128_digest(data[:-DIGEST_BYTES])),
        ("header digest in the manifest", data[-DIGEST_BYTES:], digest),
    ):
        if got != allowed:
            raise ChunkError(f"{name}: got {got!r}, allowed {allowed!r}")

    parts = []
    offset = len(data)
    for index, (raw, encoded, checksum, encoding) in enumerate(_PART.iter_unpack(data[_HEAD.size : -DIGEST_BYTES])):
        if part_sizes is not None and raw != part_sizes[index]:
            raise ChunkError(f"part[{index}]: got {raw} bytes, allowed {part_sizes[index]}")
        if encoding not in Encoding.__members__.values() or encoded > raw or (encoding == Encoding.RAW and encoded != raw):
            raise ChunkError(
                f"part[{index}]: got encoding {encoding} of {encoded} bytes for {raw}, allowed 0 (same size), 1, 2 (at most)"
            )
        parts.append(Part(offset, raw, encoded, checksum, Encoding(encoding)))
        offset += encoded
    if offset != file_bytes:
        raise ChunkError(f"parts: got {offset} bytes in all, allowed {file_bytes} (the file's size)")
    return ChunkHeader(digest, num_rows, tuple(parts))


def verify_part(part: Part, data: Bytes) -> None:
    """Raises ChunkError when the encoded bytes are not those that were written."""
    require_checksum(part, xxhash.xxh3_64_intdigest(data))


def require_checksum(part: Part, got: int) -> None:
    """Raises ChunkError when `got` is not the checksum that the header has for the part."""
    if got != part.checksum:
        raise ChunkError(f"part at {part.offset}: got checksum {got:016x}, allowed {part.checksum:016x}")


def decode_part(part: Part, data: Bytes) -> Bytes:
    """The raw bytes of verified encoded ones; never more than the header said, which was checked against the layout."""
    if part.encoding is Encoding.RAW:
        return data
    try:
        size = zstandard.frame_content_size(data)
        if size != part.raw_bytes:
            raise ChunkError(f"part at {part.offset}: got a frame of {size} bytes, allowed {part.raw_bytes}")
        raw: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=part.raw_bytes)
    except zstandard.ZstdError as error:
        raise ChunkError(f"part at {part.offset}: got a damaged zstd frame ({error}), allowed a whole one") from error
    if len(raw) != part.raw_bytes:
        raise ChunkError(f"part at {part.offset}: got {len(raw)} bytes, allowed {part.raw_bytes}")
    return _join_planes(raw) if part.encoding is Encoding.PLANES_ZSTD else raw


def _encode(part: Bytes, encoding: Encoding) -> tuple[Encoding, Bytes]:
    if encoding is Encoding.RAW:
        return Encoding.RAW, part
    raw = memoryview(part).cast("B")
    prepare: Callable[[memoryview], Bytes] = _split_planes if encoding is Encoding.PLANES_ZSTD else lambda data: data
    data = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(prepare(raw))
    return (encoding, data) if len(data) < len(raw) else (Encoding.RAW, part)


def _split_planes(raw: memoryview) -> bytes:
    array = np.frombuffer(raw, dtype=np.uint8)
    return array[0::2].tobytes() + array[1::2].tobytes()


def _join_planes(planes: bytes) -> bytes:
    array = np.frombuffer(planes, dtype=np.uint8)
    joined = np.empty_like(array)
    num_even = (len(array) + 1) // 2
    joined[0::2] = array[:num_even]
    joined[1::2] = array[num_even:]
    return joined.tobytes()
