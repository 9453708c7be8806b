"""From a snapshot and a length to the chunks that must be read for it."""

from __future__ import annotations

from zllm_ref.cache.restore import RestorePlan
from zllm_ref.cache.snapshot import StateCodec
from zllm_ref.cache.ssd.places import identity_digest, rows_of_block
from zllm_ref.cache.ssd.reading import ChunkRead
from zllm_ref.cache.ssd.store import Entry, SnapshotStore


def plan_restore(store: SnapshotStore, entry: Entry, length: int, codec: StateCodec, num_resident_blocks: int = 0) -> RestorePlan:
    """The first `length` tokens of the snapshot, without the blocks that are resident already.

        blocks of the snapshot   [ resident ][ resident ][  read  ][ read, cut ]  not wanted
                                                                   ^ length

    The fixed tensors come with the whole length only.
    """
    manifest = entry.manifest
    directory = store.root / "chunks"
    chunks = []
    for index in range(num_resident_blocks, -(-length // manifest.block_tokens)):
        start = index * manifest.block_tokens
        stored_rows = rows_of_block(len(manifest.id_bytes), manifest.block_tokens, index)
        chunks.append(
            ChunkRead(
                directory=directory,
                key=entry.keys[index],
                record=manifest.chunks[index],
                start=start,
                stored_rows=stored_rows,
                wanted_rows=min(stored_rows, length - start),
                part_sizes=codec.row_part_sizes(stored_rows),
            )
        )
    if manifest.has_fixed and length == manifest.length:
        chunks.append(
            ChunkRead(
                directory=directory,
                key=entry.keys[-1],
                record=manifest.chunks[-1],
                start=0,
                stored_rows=0,
                wanted_rows=0,
                part_sizes=codec.fixed_part_sizes(),
            )
        )
    return RestorePlan(manifest.cache_id, identity_digest(manifest.identity), length, tuple(chunks))


def bytes_to_read(entry: Entry, length: int, num_resident_blocks: int) -> int:
    """What `plan_restore` would touch on disk, without planning it; the fixed tensors are few bytes and left out."""
    end = -(-length // entry.manifest.block_tokens)
    return sum(record.file_bytes for record in entry.manifest.chunks[num_resident_blocks:end])
