"""Where a snapshot's files lie, and under which keys: names follow from tokens and generation, never from what a file says."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from zllm_ref.cache.key import KEY_BYTES, block_key, root_key
from zllm_ref.cache.prefix_graph import ID_BYTES
from zllm_ref.cache.ssd.files import Files

_FIXED = b"fixed tensors"


def chain_keys(identity: str, namespace: str, id_bytes: bytes, block_tokens: int, has_fixed: bool) -> tuple[bytes, ...]:
    """The keys of a snapshot's chunks: one for each block of its tokens, and one for the fixed tensors at its end."""
    key = root_key(identity, namespace)
    keys = []
    for start in range(0, len(id_bytes), block_tokens * ID_BYTES):
        key = block_key(key, id_bytes[start : start + block_tokens * ID_BYTES])
        keys.append(key)
    if has_fixed:
        keys.append(block_key(key, _FIXED))
    return tuple(keys)


def rows_of_block(num_id_bytes: int, block_tokens: int, index: int) -> int:
    """How many tokens block `index` of so many tokens has."""
    return min(block_tokens, num_id_bytes // ID_BYTES - index * block_tokens)


def identity_digest(identity: str) -> bytes:
    """The identity in the fixed length that a chunk's header has room for."""
    return blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def chunk_name(key: bytes) -> str:
    """The file name of a chunk, in `chunks/` (and in `temporary/` while it is written)."""
    return f"{key.hex()}.chunk"


def manifest_name(generation: int) -> str:
    """The file name of a manifest, in `manifests/` (and in `temporary/` while it is written)."""
    return f"{generation:016x}.manifest"


def remove_files(files: Files, root: Path, manifests: Iterable[Path], chunks: Iterable[Path]) -> None:
    """Manifests first, durably; only then the chunks, which no manifest names any more. Chunks alone need no sync."""
    manifests = list(manifests)
    for path in manifests:
        files.remove(path)
    if manifests:
        files.sync_directory(root / "manifests")
    for path in chunks:
        files.remove(path)
