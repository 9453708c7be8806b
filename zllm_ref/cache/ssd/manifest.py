"""One snapshot's manifest: who it is, its tokens, and the digest of each of its chunks, as bytes that check themselves.

    magic version fields ids chunks | fields (JSON) | ids (int32) | digest and size of each chunk | digest of all before
    8     4       4      4   4        ≤ 64 KiB        4 × ids       24 × chunks                      16

The file's size follows from its head, so nothing is allocated for a length that the file does not have.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from zllm_ref.cache.prefix_graph import ID_BYTES

MAGIC = b"zllmmani"
VERSION = 2
HEAD_BYTES = 24
MOST_BYTES = 1 << 26
"""Sixteen million tokens."""
_MOST_FIELD_BYTES = 1 << 16
_HEAD = struct.Struct("<8sIIII")
_CHUNK = struct.Struct("<16sQ")
_DIGEST_BYTES = 16
_FIELDS: dict[str, type] = {
    "generation": int,
    "cache_id": str,
    "identity": str,
    "namespace": str,
    "round": int,
    "is_unit": bool,
    "is_head": bool,
    "resident_bytes": int,
    "block_tokens": int,
    "has_fixed": bool,
}


class ManifestError(ValueError):
    """The bytes are not a manifest: damaged, or of somebody else."""


class UnknownVersion(ManifestError):
    """A manifest of another version of this format: not ours to read, and not ours to delete."""


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A chunk as its manifest names it: the digest of its header, and the size of its file."""

    digest: bytes
    file_bytes: int


@dataclass(frozen=True)
class Manifest:
    """A snapshot without its rows. `chunks`: one a block, in order, and one more for the fixed tensors where it has them."""

    generation: int
    cache_id: str
    identity: str
    namespace: str
    round: int
    is_unit: bool
    """Kept on the way through a round, not at its end."""
    is_head: bool
    """No later round was saved when this was written."""
    resident_bytes: int
    block_tokens: int
    has_fixed: bool
    id_bytes: bytes
    chunks: tuple[ChunkRecord, ...]

    @property
    def length(self) -> int:
        return len(self.id_bytes) // ID_BYTES

    @property
    def num_blocks(self) -> int:
        return -(-self.length // self.block_tokens)


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as file contents."""
    fields = json.dumps({name: getattr(manifest, name) for name in _FIELDS}, ensure_ascii=True).encode()
    if len(fields) > _MOST_FIELD_BYTES:
        raise ManifestError(f"fields: got {len(fields)} bytes, allowed {_MOST_FIELD_BYTES}")
    head = _HEAD.pack(MAGIC, VERSION, len(fields), manifest.length, len(manifest.chunks))
    chunks = b"".join(_CHUNK.pack(chunk.digest, chunk.file_bytes) for chunk in manifest.chunks)
    body = head + fields + manifest.id_bytes + chunks
    return body + blake2b(body, digest_size=_DIGEST_BYTES).digest()


def stated_bytes(head: bytes) -> int:
    """How long the file is by its own head. Raises ManifestError, or UnknownVersion, before anything else of it is read."""
    if len(head) < HEAD_BYTES:
        raise ManifestError(f"manifest: got {len(head)} bytes, allowed at least {HEAD_BYTES + _DIGEST_BYTES}")
    magic, version, field_bytes, num_ids, num_chunks = _HEAD.unpack_from(head)
    if magic != MAGIC:
        raise ManifestError(f"magic: got {magic!r}, allowed {MAGIC!r}")
    if version != VERSION:
        raise UnknownVersion(f"version: got {version}, allowed {VERSION}")
    if field_bytes > _MOST_FIELD_BYTES:
        raise ManifestError(f"fields: got {field_bytes} bytes, allowed {_MOST_FIELD_BYTES}")
    return int(HEAD_BYTES + field_bytes + num_ids * ID_BYTES + num_chunks * _CHUNK.size + _DIGEST_BYTES)


def parse_manifest(data: bytes) -> Manifest:
    """Raises ManifestError, or UnknownVersion, for anything that `encode_manifest` would not have written."""
    allowed = stated_bytes(data)
    if len(data) != allowed:
        raise ManifestError(f"manifest: got {len(data)} bytes, allowed {allowed} as its head says")
    _, _, field_bytes, num_ids, num_chunks = _HEAD.unpack_from(data)
    ids_at = _HEAD.size + field_bytes
    chunks_at = ids_at + num_ids * ID_BYTES
    digest_at = chunks_at + num_chunks * _CHUNK.size
    if blake2b(data[:digest_at], digest_size=_DIGEST_BYTES).digest() != data[digest_at:]:
        raise ManifestError("digest: got another one than that of the contents")
    fields = _parse_fields(data[_HEAD.size : ids_at])
    chunks = tuple(ChunkRecord(digest, size) for digest, size in _CHUNK.iter_unpack(data[chunks_at:digest_at]))
    manifest = Manifest(**fields, id_bytes=data[ids_at:chunks_at], chunks=chunks)
    if manifest.block_tokens < 1 or not manifest.length or len(chunks) != manifest.num_blocks + manifest.has_fixed:
        raise ManifestError(f"chunks: got {len(chunks)} for {manifest.length} tokens in blocks of {manifest.block_tokens}")
    return manifest


def _parse_fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"fields: got no JSON ({error})") from error
    if not isinstance(fields, dict) or fields.keys() != _FIELDS.keys():
        raise ManifestError(
            f"fields: got {sorted(fields) if isinstance(fields, dict) else type(fields)}, allowed {sorted(_FIELDS)}"
        )
    for name, kind in _FIELDS.items():
        if type(fields[name]) is not kind or (kind is int and fields[name] < 0):
            raise ManifestError(f"fields.{name}: got {fields[name]!r}, allowed {kind.__name__} (numbers not below 0)")
    return fields
