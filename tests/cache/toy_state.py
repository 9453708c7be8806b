"""A state small enough to read: row i of layer l is a digest of (l, the tokens up to i), so a wrong row cannot look right.

Three layers of 16 bytes a row (6 of digest, the rest zero, so that they can be compressed), and two fixed parts of 16 bytes
that are digests of the whole token list.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from zllm_ref.cache import StateLayout
from zllm_ref.cache.restore import Restore
from zllm_ref.cache.snapshot import PartRange
from zllm_ref.cache.ssd.chunks import Encoding
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.plan import plan_restore
from zllm_ref.cache.ssd.save_job import SaveRequest
from zllm_ref.cache.ssd.store import Entry, SnapshotStore

BLOCK = 4
LAYERS = 3
ROW = 16
FIXED = 16
LINEAR = StateLayout(BLOCK, LAYERS * ROW, 0, cuttable=True)
RINGS = StateLayout(BLOCK, LAYERS * ROW, 2 * FIXED, cuttable=False)


def row(layer: int, ids: Sequence[int]) -> bytes:
    return blake2b(repr((layer, tuple(ids))).encode(), digest_size=6).digest() + bytes(ROW - 6)


def fixed_part(number: int, ids: Sequence[int]) -> bytes:
    return blake2b(repr(("fixed", number, tuple(ids))).encode(), digest_size=FIXED).digest()


def id_bytes(ids: Sequence[int]) -> bytes:
    return np.array(ids, dtype="<i4").tobytes()


class ToySession:
    """What a finished session would copy out."""

    def __init__(self, ids: Sequence[int], has_fixed: bool = False) -> None:
        self.ids = list(ids)
        self.has_fixed = has_fixed

    def copy_rows(self, start: int, end: int) -> object:
        return [b"".join(row(layer, self.ids[: i + 1]) for i in range(start, end)) for layer in range(LAYERS)]

    def copy_fixed(self) -> object | None:
        return [fixed_part(number, self.ids) for number in range(2)] if self.has_fixed else None


class ToyCodec:
    """Parts are layers; `salt` stands for another model whose rows have another size."""

    def __init__(self, row_bytes: int = ROW, has_fixed: bool = False) -> None:
        self.row_bytes = row_bytes
        self.has_fixed = has_fixed

    def row_part_sizes(self, num_rows: int) -> tuple[int, ...]:
        return (num_rows * self.row_bytes,) * LAYERS

    def fixed_part_sizes(self) -> tuple[int, ...]:
        return (FIXED, FIXED) if self.has_fixed else ()

    def row_parts(self, payload: object) -> Sequence[bytes]:
        assert isinstance(payload, list)
        return payload

    def fixed_parts(self, payload: object) -> Sequence[bytes]:
        assert isinstance(payload, list)
        return payload

    def row_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        return tuple((LAYERS * stage // num_stages, LAYERS * (stage + 1) // num_stages) for stage in range(num_stages))

    def fixed_stages(self, num_stages: int) -> tuple[PartRange, ...]:
        num_parts = len(self.fixed_part_sizes())
        return tuple((num_parts * stage // num_stages, num_parts * (stage + 1) // num_stages) for stage in range(num_stages))


class ToyTarget:
    """A session buffer of so many tokens, and the order in which its stages landed."""

    def __init__(self, num_tokens: int, num_stages: int = 1) -> None:
        self.rows = [bytearray(b"\xff" * (num_tokens * ROW)) for _ in range(LAYERS)]
        self.fixed = [bytearray(FIXED) for _ in range(2)]
        self.num_stages = num_stages
        self.landed: list[int] = []
        self.uploads = False

    def row_buffers(self, stage: int, start: int, num_rows: int) -> Sequence[memoryview]:
        first, end = ToyCodec().row_stages(self.num_stages)[stage]
        return [memoryview(layer)[start * ROW : (start + num_rows) * ROW] for layer in self.rows[first:end]]

    def fixed_buffers(self, stage: int) -> Sequence[memoryview]:
        first, end = ToyCodec(has_fixed=True).fixed_stages(self.num_stages)[stage]
        return [memoryview(part) for part in self.fixed[first:end]]

    def stage_landed(self, stage: int) -> None:
        self.landed.append(stage)

    def holds(self, ids: Sequence[int]) -> bool:
        """The rows of exactly these tokens are in place, in all layers."""
        return all(
            bytes(self.rows[layer][: len(ids) * ROW]) == b"".join(row(layer, ids[: i + 1]) for i in range(len(ids)))
            for layer in range(LAYERS)
        )

    def holds_fixed(self, ids: Sequence[int]) -> bool:
        return [bytes(part) for part in self.fixed] == [fixed_part(number, ids) for number in range(2)]


def request(
    ids: Sequence[int], cache_id: str, namespace: str = "", has_fixed: bool = False, round: int = 0, is_unit: bool = False
) -> SaveRequest:
    session = ToySession(ids, has_fixed)
    payloads = tuple(session.copy_rows(start, min(start + BLOCK, len(ids))) for start in range(0, len(ids), BLOCK))
    return SaveRequest(
        cache_id, namespace, round, len(ids) * LAYERS * ROW, id_bytes(ids), payloads, session.copy_fixed(), is_unit
    )


class QuickFiles(Files):
    """The real disk without waiting for it: what a test sees does not depend on what a power failure would leave."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


def open_store(
    root: Path,
    capacity_bytes: int = 1_000_000,
    identity: str = "model",
    files: Files | None = None,
    encoding: Encoding = Encoding.RAW,
    read_only: bool = False,
    prefix_rounds: int = 100,
) -> SnapshotStore:
    return SnapshotStore.open(
        root,
        capacity_bytes,
        identity=identity,
        files=files or QuickFiles(),
        encoding=encoding,
        read_only=read_only,
        prefix_rounds=prefix_rounds,
    )


def save(
    store: SnapshotStore,
    ids: Sequence[int],
    cache_id: str,
    namespace: str = "",
    has_fixed: bool = False,
    is_unit: bool = False,
) -> Entry | None:
    """A whole save, and the books checked after it."""
    job = store.plan_save(request(ids, cache_id, namespace, has_fixed, is_unit=is_unit), ToyCodec(has_fixed=has_fixed), BLOCK)
    if job is None:
        store.check()
        return None
    store.check()
    job.run()
    entry = store.finish_save(job)
    store.check()
    return entry


def reuse(
    store: SnapshotStore, ids: Sequence[int], namespace: str = "", cache_id: str | None = None, is_cuttable: bool = True
) -> int:
    """Tokens that the store gives back for this prompt; every row that it gives is checked."""
    found = store.find(namespace, id_bytes(ids), cache_id=cache_id, is_cuttable=is_cuttable)
    if found is None:
        return 0
    entry, length = found
    codec = ToyCodec(has_fixed=entry.manifest.has_fixed)
    target = ToyTarget(length)
    restore = Restore(plan_restore(store, entry, length, codec), codec, target, store.files)
    restore.run()
    if restore.failure is not None:
        return 0
    assert target.holds(ids[:length])
    if entry.manifest.has_fixed and length == entry.manifest.length:
        assert target.holds_fixed(ids[:length])
    return length
