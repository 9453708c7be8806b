"""What `cache ls`, `show`, `verify` and `gc` do and print."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from zllm_ref.cache.prefix_graph import ids_of
from zllm_ref.cache.ssd.chunks import ChunkError
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.places import identity_digest
from zllm_ref.cache.ssd.reading import verify_chunk
from zllm_ref.cache.ssd.store import Entry, SnapshotStore, StoreUnusable


def act(args: argparse.Namespace) -> int:
    """Opens the directory, does what `args.action` says, and gives the exit code."""
    try:
        store = SnapshotStore.open(args.ssd_dir, 1 << 62, identity="", read_only=args.action != "gc")
    except StoreUnusable as error:
        print(error, file=sys.stderr)
        return 2
    try:
        return {"ls": _list, "show": _show, "verify": _verify, "gc": _collect}[args.action](store, args)
    finally:
        store.close()


def describe(entry: Entry) -> dict[str, Any]:
    """A snapshot as plain data; `bytes` counts every chunk that it names, shared or not."""
    manifest = entry.manifest
    return {
        "cache_id": manifest.cache_id,
        "generation": manifest.generation,
        "identity": manifest.identity,
        "namespace": manifest.namespace,
        "tokens": manifest.length,
        "round": manifest.round,
        "is_unit": manifest.is_unit,
        "is_head": manifest.is_head,
        "chunks": len(manifest.chunks),
        "bytes": sum(chunk.file_bytes for chunk in manifest.chunks),
        "resident_bytes": manifest.resident_bytes,
        "has_fixed_tensors": manifest.has_fixed,
    }


def _list(store: SnapshotStore, args: argparse.Namespace) -> int:
    found = [describe(entry) for entry in store.entries.values()]
    if args.json:
        print(json.dumps({"snapshots": found, "used_bytes": store.used_bytes}))
        return 0
    print(f"{'cache id':<32} {'generation':>10} {'tokens':>9} {'round':>5} {'MB':>9}  namespace")
    for one in found:
        print(
            f"{one['cache_id']:<32} {one['generation']:>10} {one['tokens']:>9,} {one['round']:>5} "
            f"{one['bytes'] / 1e6:>9.1f}  {one['namespace'] or '-'}"
        )
    print(f"{len(found)} snapshots, {store.used_bytes / 1e6:.1f} MB on disk")
    return 0


def _show(store: SnapshotStore, args: argparse.Namespace) -> int:
    entry = store.entries.get(args.cache_id)
    if entry is None:
        print(f"cache id: got {args.cache_id!r}, allowed one that `cache ls` prints", file=sys.stderr)
        return 1
    facts = describe(entry)
    ids = ids_of(entry.id_bytes).tolist()
    chunks = [
        {"key": key.hex(), "bytes": record.file_bytes} for key, record in zip(entry.keys, entry.manifest.chunks, strict=True)
    ]
    if args.json:
        print(json.dumps({**facts, "ids": ids, "chunk_files": chunks}))
        return 0
    for name, value in facts.items():
        print(f"{name:<18} {value}")
    print(f"{'first ids':<18} {' '.join(map(str, ids[:16]))}{' ...' if len(ids) > 16 else ''}")
    for chunk in chunks:
        print(f"{'chunk':<18} {chunk['key']}  {chunk['bytes']:,} bytes")
    return 0


def _verify(store: SnapshotStore, args: argparse.Namespace) -> int:
    damaged = _damaged(store)
    total = len(list(store.chunk_files()))
    if args.json:
        print(json.dumps({"chunks": total, "damaged": {key.hex(): reason for key, reason in damaged.items()}}))
    else:
        for reason in damaged.values():
            print(reason)
        print(f"{total} chunks read, {len(damaged)} damaged")
    return 1 if damaged else 0


def _collect(store: SnapshotStore, args: argparse.Namespace) -> int:
    before = len(store.entries)
    for key in _damaged(store):
        store.remove_damaged(key)
    damaged = before - len(store.entries)
    if args.ssd_bytes is not None:
        for entry in list(store.entries.values()):
            if store.used_bytes <= args.ssd_bytes:
                break
            store.remove([entry])
    store.flush()
    removed = before - len(store.entries)
    if args.json:
        print(json.dumps({"removed": removed, "damaged": damaged, "kept": len(store.entries), "used_bytes": store.used_bytes}))
    else:
        print(
            f"{removed} snapshots removed ({damaged} damaged), {len(store.entries)} kept, {store.used_bytes / 1e6:.1f} MB on disk"
        )
    return 0


def _damaged(store: SnapshotStore) -> dict[bytes, str]:
    """Chunks that cannot be used, by key, each with the reason."""
    identities = {key: entry.manifest.identity for entry in store.entries.values() for key in entry.keys}
    damaged = {}
    files = Files()
    for path, key, record in store.chunk_files():
        try:
            verify_chunk(files, path, key, identity_digest(identities[key]), record)
        except (ChunkError, OSError) as error:
            damaged[key] = f"{path.name}: {error}"
    return damaged
