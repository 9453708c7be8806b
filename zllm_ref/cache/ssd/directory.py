"""What lies in the directory when a process comes to it: a lock, manifests, and whatever a crash left over.

Everything read here is untrusted, and whatever is wrong is a log line: a manifest that is not one is no snapshot, one of a later
version is not ours to read and not ours to delete, nor are the chunks that it may name.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Container
from pathlib import Path

from zllm_ref.cache.key import KEY_BYTES
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.manifest import (
    HEAD_BYTES,
    MOST_BYTES,
    Manifest,
    ManifestError,
    UnknownVersion,
    parse_manifest,
    stated_bytes,
)
from zllm_ref.cache.ssd.places import manifest_name

_log = logging.getLogger(__name__)

_MANIFEST_NAME = re.compile(r"[0-9a-f]{16}\.manifest")
_CHUNK_NAME = re.compile(r"[0-9a-f]{32}\.chunk")
FOLDERS = ("chunks", "manifests", "temporary")


class StoreUnusable(OSError):
    """The directory cannot be used: another process owns it, or the disk refuses. The text says what to do."""


def take_lock(root: Path) -> int:
    """The descriptor that holds the directory for this process; raises StoreUnusable when another one has it."""
    descriptor = os.open(root / "LOCK", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreUnusable(
            f"--ssd-dir {root}: in use by process {owner}; stop it, or give this server a directory of its own"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def read_manifests(files: Files, root: Path, *, sweep: bool) -> tuple[list[Manifest], bool]:
    """All manifests, the newest last; and whether every one was understood, so that a chunk that none names is a leftover."""
    manifests = []
    is_all_understood = True
    for name in files.names(root / "manifests"):
        path = root / "manifests" / name
        if not _MANIFEST_NAME.fullmatch(name):
            _log.warning("%s: not a manifest's name, left alone", path)
            continue
        try:
            manifests.append(_read_manifest(files, path))
        except UnknownVersion as error:
            _log.warning("%s: left alone, and all chunks with it: %s", path, error)
            is_all_understood = False
        except (ManifestError, OSError) as error:
            _log.warning("%s: no snapshot: %s", path, error)
            if sweep:
                sweep_file(files, path)
    return manifests, is_all_understood


def sweep_temporary(files: Files, root: Path) -> None:
    """Removes what was being written when the last process ended."""
    for name in files.names(root / "temporary"):
        sweep_file(files, root / "temporary" / name)


def sweep_chunks(files: Files, root: Path, named: Container[bytes]) -> None:
    """Removes the chunks that no snapshot names."""
    for name in files.names(root / "chunks"):
        if _CHUNK_NAME.fullmatch(name) and bytes.fromhex(name[: 2 * KEY_BYTES]) not in named:
            sweep_file(files, root / "chunks" / name)


def sweep_file(files: Files, path: Path) -> None:
    """Removes one file; a disk that refuses is a log line."""
    try:
        files.remove(path)
    except OSError as error:
        _log.warning("%s: a leftover that cannot be removed: %s", path, error)


def _read_manifest(files: Files, path: Path) -> Manifest:
    descriptor, size = files.open(path)
    try:
        head = bytearray(min(size, HEAD_BYTES))
        files.read_into(descriptor, 0, [memoryview(head)])
        allowed = min(stated_bytes(bytes(head)), MOST_BYTES)
        if size != allowed:
            raise ManifestError(
                f"manifest: got {size} bytes, allowed {allowed} as its head says, and never more than {MOST_BYTES}"
            )
        data = bytearray(size)
        files.read_into(descriptor, 0, [memoryview(data)])
    finally:
        files.close(descriptor)
    manifest = parse_manifest(bytes(data))
    if path.name != manifest_name(manifest.generation):
        raise ManifestError(f"generation: got {manifest.generation} under the name {path.name}")
    return manifest
