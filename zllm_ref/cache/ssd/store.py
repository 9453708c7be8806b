"""The directory of snapshots: open, find, save, read, remove, within a budget of bytes on disk.

    plan_save ──▶ SaveJob.run ──▶ finish_save          decide │ write (any thread) │ publish or forget
                  remove victims' manifests, sync
                  write chunks, sync each, rename, sync directory
                  write manifest, sync, rename, sync directory        ◀── from here on the snapshot exists

Decisions and the index belong to one thread, the cache's; a job touches files only. One save runs at a time.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from zllm_ref.cache.key import root_key
from zllm_ref.cache.prefix_graph import ID_BYTES
from zllm_ref.cache.snapshot import StateCodec
from zllm_ref.cache.ssd.chunks import Encoding
from zllm_ref.cache.ssd.directory import (
    FOLDERS,
    StoreUnusable,
    read_manifests,
    sweep_chunks,
    sweep_file,
    sweep_temporary,
    take_lock,
)
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.index import SnapshotIndex
from zllm_ref.cache.ssd.manifest import ChunkRecord, Manifest, encode_manifest
from zllm_ref.cache.ssd.places import chain_keys, chunk_name, manifest_name, remove_files
from zllm_ref.cache.ssd.save_job import SaveJob, SaveRequest, most_chunk_bytes, most_manifest_bytes

_log = logging.getLogger(__name__)

__all__ = ["Chunk", "Entry", "SnapshotStore", "StoreUnusable"]


@dataclass(eq=False)
class Entry:
    """A snapshot that exists: its manifest, and who reads it now."""

    manifest: Manifest
    keys: tuple[bytes, ...]
    file_bytes: int
    """Size of the manifest's own file."""
    readers: int = 0

    @property
    def id_bytes(self) -> bytes:
        return self.manifest.id_bytes


@dataclass(slots=True)
class Chunk:
    """A chunk that exists, and by how many snapshots it is named."""

    key: bytes
    record: ChunkRecord
    references: int = 0


class SnapshotStore:
    """Snapshots in `root`, at most `capacity_bytes` of them. Open it with `SnapshotStore.open`.

    Snapshots of other identities stay where they are and are never found; the budget may take them like any other. Called
    from one thread; only `SaveJob.run` may run elsewhere.
    """

    def __init__(
        self, root: Path, capacity_bytes: int, *, identity: str, prefix_rounds: int, encoding: Encoding, files: Files
    ) -> None:
        self.root = root
        self.capacity_bytes = capacity_bytes
        self.identity = identity
        self.prefix_rounds = prefix_rounds
        self.encoding = encoding
        self.files = files
        self.used_bytes = 0
        self.written_bytes = 0
        self.evictions = 0
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        """By cache id, least recently used first."""
        self._chunks: dict[bytes, Chunk] = {}
        self._indexes: dict[bytes, SnapshotIndex[Entry]] = {}
        self._generation = 0
        self._job: SaveJob | None = None
        self._lock: int | None = None
        self._doomed_manifests: list[Path] = []
        self._doomed_chunks: list[Path] = []

    @staticmethod
    def open(
        root: Path,
        capacity_bytes: int,
        *,
        identity: str,
        prefix_rounds: int = 4,
        encoding: Encoding = Encoding.RAW,
        files: Files | None = None,
        read_only: bool = False,
    ) -> SnapshotStore:
        """Takes the lock, sweeps leftovers, reads every manifest, and evicts what a smaller budget has no room for.

        Raises StoreUnusable with a sentence for the user. `read_only` looks without lock and changes nothing.
        """
        files = files or Files()
        root = Path(os.path.realpath(root))
        store = SnapshotStore(
            root, capacity_bytes, identity=identity, prefix_rounds=prefix_rounds, encoding=encoding, files=files
        )
        try:
            if not read_only:
                root.parent.mkdir(parents=True, exist_ok=True)
                for directory in (root, *(root / name for name in FOLDERS)):
                    files.make_directory(directory)
                store._lock = take_lock(root)
            store._load(sweep=not read_only)
            if not read_only:
                store._evict_until_used(capacity_bytes)
                store.flush()
        except StoreUnusable:
            raise
        except OSError as error:
            store.close()
            raise StoreUnusable(
                f"--ssd-dir {root}: cannot be used ({error}); choose a directory that this user may write to"
            ) from error
        return store

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def find(self, namespace: str, id_bytes: bytes, *, cache_id: str | None, is_cuttable: bool) -> tuple[Entry, int] | None:
        """The snapshot to reuse for these tokens and how many of them: by exact id, else by longest prefix. Changes nothing."""
        index = self._indexes.get(root_key(self.identity, namespace), SnapshotIndex())
        most = id_bytes[:-ID_BYTES]
        named = self.entries.get(cache_id) if cache_id is not None else None
        if named is not None and index.same(named.id_bytes) is named:
            if most.startswith(named.id_bytes):
                return named, named.manifest.length
            if is_cuttable and most and named.id_bytes.startswith(id_bytes):
                return named, len(most) // ID_BYTES
        if is_cuttable:
            return index.closest(most)
        whole = next(index.whole_prefixes(most), None)
        return (whole, whole.manifest.length) if whole is not None else None

    def closest(self, namespace: str, id_bytes: bytes) -> tuple[Entry, int] | None:
        """The snapshot that shares most tokens with these, reusable or not."""
        index = self._indexes.get(root_key(self.identity, namespace), SnapshotIndex())
        return index.closest(id_bytes)

    def round_after(self, namespace: str, id_bytes: bytes) -> int:
        """The round that a state of these tokens belongs to, by the longest snapshot that it continues."""
        index = self._indexes.get(root_key(self.identity, namespace), SnapshotIndex())
        for before in index.whole_prefixes(id_bytes):
            if before.id_bytes != id_bytes:
                return before.manifest.round + (not before.manifest.is_unit)
        return 0

    def holds(self, namespace: str, id_bytes: bytes) -> bool:
        """There is a snapshot of exactly these tokens."""
        index = self._indexes.get(root_key(self.identity, namespace), SnapshotIndex())
        return index.same(id_bytes) is not None

    def touch(self, entry: Entry) -> None:
        """Marks the snapshot as the most recently used one."""
        if self.entries.get(entry.manifest.cache_id) is entry:
            self.entries.move_to_end(entry.manifest.cache_id)

    def plan_save(self, request: SaveRequest, codec: StateCodec, block_tokens: int) -> SaveJob | None:
        """Decides a save: makes room in the budget, and says what to write. None: it is there already, or can never fit."""
        if self._job is not None:
            raise AssertionError("a save is running: finish it first")
        if self.holds(request.namespace, request.id_bytes):
            return None
        keys = chain_keys(self.identity, request.namespace, request.id_bytes, block_tokens, request.fixed is not None)
        keys = tuple(self._chunks[key].key if key in self._chunks else key for key in keys)  # one object a key
        new = [index for index, key in enumerate(keys) if key not in self._chunks]
        needed = most_manifest_bytes(request, self.identity, len(keys))
        needed += sum(most_chunk_bytes(request, codec, block_tokens, index) for index in new)
        known = {key: self._chunks[key].record for key in keys if key in self._chunks}
        if needed + sum(record.file_bytes for record in known.values()) > self.capacity_bytes:
            return None
        for key in known:  # before anything is evicted: what is shared must not go away with a victim
            self._chunks[key].references += 1
        if not self._evict_until_used(self.capacity_bytes - needed):
            self._dereference(known)
            return None
        self._generation += 1
        self.used_bytes += needed
        self._job = SaveJob(
            request=request,
            root=self.root,
            files=self.files,
            codec=codec,
            encoding=self.encoding,
            identity=self.identity,
            block_tokens=block_tokens,
            generation=self._generation,
            keys=keys,
            known=known,
            doomed_manifests=tuple(self._doomed_manifests),
            doomed_chunks=tuple(self._doomed_chunks),
            reserved_bytes=needed,
        )
        self._doomed_manifests.clear()
        self._doomed_chunks.clear()
        return self._job

    def finish_save(self, job: SaveJob) -> Entry | None:
        """Publishes what the job wrote, and gives up rounds that became too old. None: it failed and left nothing behind."""
        if job is not self._job:
            raise AssertionError("not the running save")
        self._job = None
        self.used_bytes -= job.reserved_bytes
        self.written_bytes += job.written_bytes
        manifest = job.manifest
        if manifest is None:
            self._dereference(job.known)
            return None
        for key, record in job.written.items():
            self._chunks[key] = Chunk(key, record, 1)
            self.used_bytes += record.file_bytes
        entry = Entry(manifest, job.keys, len(encode_manifest(manifest)))
        self._publish(entry)
        self._give_up_old_rounds(entry)
        return entry

    def remove(self, entries: Iterable[Entry]) -> None:
        """Takes snapshots away, and the chunks that only they had; their files go with the next save or `flush`."""
        for entry in entries:
            if self.entries.get(entry.manifest.cache_id) is entry:
                self._doomed_manifests.append(self.root / "manifests" / manifest_name(entry.manifest.generation))
                self._forget(entry)

    def flush(self) -> None:
        """Deletes the files of removed snapshots now. A disk that refuses is a log line: they will be swept at a start."""
        try:
            remove_files(self.files, self.root, self._doomed_manifests, self._doomed_chunks)
        except OSError as error:
            _log.warning("removed snapshots stay on disk until the next start: %s", error)
        self._doomed_manifests.clear()
        self._doomed_chunks.clear()

    def remove_damaged(self, key: bytes) -> int:
        """Takes away every snapshot that names this chunk, so that it is written anew some day; returns how many."""
        damaged = [entry for entry in self.entries.values() if key in entry.keys]
        self.remove(damaged)
        return len(damaged)

    def check(self) -> None:
        """Recounts the books against the entries; raises AssertionError where they differ. Looks at no file."""
        references: dict[bytes, int] = {}
        for entry in self.entries.values():
            for key in entry.keys:
                references[key] = references.get(key, 0) + 1
        for key in self._job.known if self._job is not None else ():
            references[key] = references.get(key, 0) + 1
        assert references == {key: chunk.references for key, chunk in self._chunks.items()}, "chunk references"
        used = sum(entry.file_bytes for entry in self.entries.values())
        used += sum(chunk.record.file_bytes for chunk in self._chunks.values())
        used += self._job.reserved_bytes if self._job is not None else 0
        assert used == self.used_bytes, f"used bytes: got {self.used_bytes}, counted {used}"
        indexed = {id(entry) for index in self._indexes.values() for entry in index}
        assert indexed == {id(entry) for entry in self.entries.values()}, "the index is not the entries"

    def chunk_files(self) -> Iterator[tuple[Path, bytes, ChunkRecord]]:
        """Every chunk that a snapshot names: its file, key and record."""
        for key, chunk in self._chunks.items():
            yield self.root / "chunks" / chunk_name(key), key, chunk.record

    def _load(self, sweep: bool) -> None:
        """Reads the manifests, newest last, and sweeps what no manifest names."""
        manifests, is_all_understood = read_manifests(self.files, self.root, sweep=sweep)
        for manifest in manifests:
            self._load_entry(manifest, sweep)
        if sweep:
            sweep_temporary(self.files, self.root)
        if sweep and is_all_understood:
            sweep_chunks(self.files, self.root, self._chunks)

    def _load_entry(self, manifest: Manifest, sweep: bool) -> None:
        self._generation = max(self._generation, manifest.generation)
        keys = chain_keys(manifest.identity, manifest.namespace, manifest.id_bytes, manifest.block_tokens, manifest.has_fixed)
        for key, record in zip(keys, manifest.chunks, strict=True):
            if key in self._chunks and self._chunks[key].record != record:
                _log.warning("snapshot %s: names a chunk with another digest than an older one, dropped", manifest.cache_id)
                if sweep:
                    sweep_file(self.files, self.root / "manifests" / manifest_name(manifest.generation))
                return
        for key, record in zip(keys, manifest.chunks, strict=True):
            if key not in self._chunks:
                self._chunks[key] = Chunk(key, record)
                self.used_bytes += record.file_bytes
            self._chunks[key].references += 1
        shared = [self._chunks[key] for key in keys]  # what many snapshots name stands in memory once
        manifest = replace(manifest, chunks=tuple(chunk.record for chunk in shared))
        self._publish(Entry(manifest, tuple(chunk.key for chunk in shared), len(encode_manifest(manifest))))

    def _publish(self, entry: Entry) -> None:
        """Makes the entry findable; an older one with the same tokens or the same name gives way."""
        index = self._indexes.setdefault(root_key(entry.manifest.identity, entry.manifest.namespace), SnapshotIndex())
        older = [other for other in (index.same(entry.id_bytes), self.entries.get(entry.manifest.cache_id)) if other is not None]
        index.add(entry)
        self.used_bytes += entry.file_bytes
        for other in older:
            self.remove([other])
        self.entries[entry.manifest.cache_id] = entry

    def _forget(self, entry: Entry) -> None:
        del self.entries[entry.manifest.cache_id]
        key = root_key(entry.manifest.identity, entry.manifest.namespace)
        self._indexes[key].remove(entry)
        if not self._indexes[key]:
            del self._indexes[key]
        self.used_bytes -= entry.file_bytes
        self._dereference(entry.keys)

    def _dereference(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            chunk = self._chunks[key]
            chunk.references -= 1
            if not chunk.references:
                del self._chunks[key]
                self.used_bytes -= chunk.record.file_bytes
                self._doomed_chunks.append(self.root / "chunks" / chunk_name(key))

    def _evict_until_used(self, most_bytes: int) -> bool:
        """Removes snapshots that nobody reads, the least recently used first; False: that was not enough."""
        while self.used_bytes > most_bytes:
            victim = next((entry for entry in self.entries.values() if not entry.readers), None)
            if victim is None:
                return False
            self.remove([victim])
            self.evictions += 1
        return True

    def _give_up_old_rounds(self, entry: Entry) -> None:
        """Removes the ancestors of more than `prefix_rounds` rounds ago, except where another conversation forks or somebody
        reads. A unit goes with its round.
        """
        index = self._indexes[root_key(entry.manifest.identity, entry.manifest.namespace)]
        num_rounds = 0
        for ancestor in [other for other in index.whole_prefixes(entry.id_bytes) if other is not entry]:
            num_rounds += not ancestor.manifest.is_unit
            if num_rounds <= self.prefix_rounds or ancestor.readers:
                continue
            forks = (later for later in index.continuations(ancestor.id_bytes) if not entry.id_bytes.startswith(later.id_bytes))
            if next(forks, None) is None:
                self.remove([ancestor])
