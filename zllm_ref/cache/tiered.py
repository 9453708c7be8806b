"""Both tiers behind one face: resident states first, snapshots on SSD for what was evicted, cold for the rest.

    commit ──▶ resident ──(behind the answer)──▶ written to SSD: clean
                  │                                  │
               evicted only when clean ◀─────────────┘         a hit on SSD is read into the session, and its commit makes
                  ▼                                            the blocks resident again: promotion needs no code of its own
                freed

A state that exists only in memory is *dirty*. Victims are clean ones; if only dirty ones are left, they are written first and
the request waits: found, demoted, freed, then admitted. The writer is one more reader of the immutable blocks: it pins what
it writes, so nothing is copied for it and the byte accounts stay exact.

File work runs on workers that are handed in; everything else here belongs to the cache's one thread, which calls `pump`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zllm_ref.cache.admission import Admission
from zllm_ref.cache.block import Hit, StateLayout, TokenIds, as_token_ids
from zllm_ref.cache.counts import SsdCounts
from zllm_ref.cache.graph_check import describe_snapshot
from zllm_ref.cache.key import root_key
from zllm_ref.cache.lookup import Match, match_at
from zllm_ref.cache.near_miss import NearMiss, NearMissPolicy
from zllm_ref.cache.near_miss_watch import NearMissWatch
from zllm_ref.cache.prefix_graph import ID_BYTES, Node, TerminalState, id_bytes_of
from zllm_ref.cache.rates import MeasuredRates
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.restore import Restore
from zllm_ref.cache.snapshot import RestoreTarget, StateCodec, Worker
from zllm_ref.cache.ssd.plan import bytes_to_read, plan_restore
from zllm_ref.cache.ssd.save_job import SaveJob, SaveRequest
from zllm_ref.cache.ssd.store import Entry, SnapshotStore
from zllm_ref.cache.units import UnitPolicy


@dataclass
class _Writing:
    """The save under way: its job, the pinned node, and the signal of the worker."""

    job: SaveJob
    state: TerminalState
    node: Node
    done: threading.Event


class TieredCache(PrefixCache):
    """A `PrefixCache` whose evicted states come back from SSD.

    `write_behind`: states are written soon after their commit; without it only when they are about to be evicted. `wake` is
    called from a worker when there is something to `pump`. `on_near_miss` hears of prompts that nearly had a hit.
    """

    def __init__(
        self,
        layout: StateLayout,
        capacity_bytes: int,
        *,
        identity: str,
        store: SnapshotStore,
        codec: StateCodec,
        writer: Worker,
        reader: Worker,
        prefix_rounds: int = 4,
        whole_states_only: bool = False,
        units: UnitPolicy | None = None,
        write_behind: bool = True,
        least_snapshot_tokens: int = 1,
        num_stages: int = 1,
        near_miss_policy: NearMissPolicy | None = None,
        on_near_miss: Callable[[NearMiss], None] | None = None,
        wake: Callable[[], None] | None = None,
        new_cache_id: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(
            layout,
            capacity_bytes,
            identity=identity,
            prefix_rounds=prefix_rounds,
            whole_states_only=whole_states_only,
            units=units,
            new_cache_id=new_cache_id,
        )
        if store.identity != identity:
            raise ValueError(f"snapshot store: got identity {store.identity!r}, allowed {identity!r} (the cache's)")
        self.store = store
        self.codec = codec
        self.num_stages = num_stages
        self.rates = MeasuredRates()
        self.ssd_counts = SsdCounts()
        self.wake = wake or (lambda: None)
        self._writer = writer
        self._reader = reader
        self._write_behind = write_behind
        self._least_snapshot_tokens = least_snapshot_tokens
        self._near_misses = NearMissWatch(self._graph, store, identity, near_miss_policy, on_near_miss)
        self._dirty: dict[TerminalState, None] = {}
        self._urgent: dict[TerminalState, None] = {}
        self._writing: _Writing | None = None
        self._reading: dict[str, Entry] = {}
        self._unanswered: set[str] = set()

    def lookup(self, namespace: str, ids: TokenIds, *, cache_id: str | None = None) -> Hit | None:
        """What a request could reuse now, in either tier. Of a hit on SSD `blocks` are the resident part. Changes nothing."""
        id_bytes = id_bytes_of(as_token_ids(ids))
        match, found, _ = self._choose(namespace, id_bytes, cache_id)
        if found is None:
            return match.as_hit() if match is not None else None
        return self._ssd_hit(found, match)

    def admit(self, namespace: str, ids: TokenIds, *, reserve_bytes: int, cache_id: str | None = None) -> Admission | None:
        """Like `PrefixCache.admit`, over both tiers. An admission with a `restore` plan is followed by `start_restore`."""
        self._refuse_impossible(reserve_bytes)
        self.pump()
        id_bytes = id_bytes_of(as_token_ids(ids))
        match, found, is_left_unread = self._choose(namespace, id_bytes, cache_id)
        admission, match = self._admit(namespace, id_bytes, match, reserve_bytes, found[1] if found is not None else None)
        if admission is None:
            return None
        self.ssd_counts.recomputed += is_left_unread
        if found is None:
            self.counts.hits += match is not None
            self.counts.misses += match is None
        else:
            entry, length = found
            entry.readers += 1
            self._reading[admission.cache_id] = entry
            self.store.touch(entry)
            plan = plan_restore(self.store, entry, length, self.codec, _num_whole_blocks(match, self.layout.block_tokens))
            admission = replace(admission, hit=self._ssd_hit(found, match), restore=plan)
            self.ssd_counts.hits += 1
        reused_length = admission.hit.length if admission.hit is not None else 0
        self.ssd_counts.near_misses += self._near_misses.look(namespace, id_bytes, reused_length)
        return admission

    def start_restore(self, admission: Admission, target: RestoreTarget) -> Restore:
        """Begins to read what the admission's plan says; wait for its stages, then call `finish_restore`."""
        if admission.restore is None:
            raise ValueError(f"restore: got admission {admission.cache_id} without a plan, allowed one with a hit on SSD")
        restore = Restore(admission.restore, self.codec, target, self.store.files, self.num_stages)

        def work() -> None:
            restore.run()
            self.wake()

        self._reader.submit(work)
        return restore

    def finish_restore(self, admission: Admission, restore: Restore) -> bool:
        """After the restore has drained: True, the rows are there. False: reset the session and compute; the snapshot is gone."""
        entry = self._reading.pop(admission.cache_id, None)
        if entry is not None:
            entry.readers -= 1
        if restore.failure is None:
            self.ssd_counts.restored_bytes += restore.plan.num_bytes
            self.ssd_counts.restore_seconds += restore.seconds
            self.rates.observe_restore(restore.plan.num_bytes, restore.seconds)
            return True
        self.ssd_counts.restores_refused += 1
        if restore.damaged is not None:
            self.store.remove_damaged(restore.damaged)
        return False

    def give_up_reading(self, admission: Admission) -> None:
        """What the admission reads does not come. Until it is released, when the disk has answered, no snapshot is read."""
        self.ssd_counts.restores_refused += 1
        self._unanswered.add(admission.cache_id)

    def release(self, admission: Admission) -> None:
        """Gives back all that the admission holds, in both tiers. Twice is once."""
        self._unanswered.discard(admission.cache_id)
        entry = self._reading.pop(admission.cache_id, None)
        if entry is not None:
            entry.readers -= 1
        super().release(admission)

    def pump(self) -> bool:
        """Publishes a save that is done and begins the next one; cheap, called at every step. True: there was something."""
        moved = False
        if self._writing is not None and self._writing.done.is_set():
            self._finish_writing(self._writing)
            moved = True
        while self._writing is None:
            state = next(iter(self._urgent or (self._dirty if self._write_behind else ())), None)
            if state is None:
                return moved
            self._begin_writing(state)
            moved = True
        return moved

    @property
    def num_dirty(self) -> int:
        """States that exist in memory only and are worth writing."""
        return len(self._dirty)

    @property
    def is_writing(self) -> bool:
        return self._writing is not None

    def write_all(self) -> None:
        """Marks every dirty state for writing, before a shutdown; `pump` until `is_writing` is False does it."""
        self._urgent.update(self._dirty)

    def check(self) -> None:
        """The books of both tiers."""
        super().check()
        self.store.check()
        terminals = set(map(id, self._graph.terminals.values()))
        assert {id(state) for state in self._dirty} <= terminals, "a dirty state that is not in the graph"
        assert self._urgent.keys() <= self._dirty.keys(), "a state to be written that is not dirty"
        readers: dict[int, int] = {}
        for entry in self._reading.values():
            readers[id(entry)] = readers.get(id(entry), 0) + 1
        for entry in self.store.entries.values():
            assert entry.readers == readers.get(id(entry), 0), f"snapshot {entry.manifest.cache_id}: {entry.readers} readers"

    def snapshot(self) -> dict[str, Any]:
        """The graph, the accounts and the snapshots as plain data."""
        dirty = {state.record.cache_id for state in self._dirty}
        shot = super().snapshot()
        for terminal in shot["terminals"]:
            terminal["is_dirty"] = terminal["cache_id"] in dirty
        shot["ssd"] = {
            "capacity_bytes": self.store.capacity_bytes,
            "used_bytes": self.store.used_bytes,
            "written_bytes": self.store.written_bytes,
            "counts": dict(vars(self.ssd_counts)),
            "snapshots": [describe_snapshot(entry) for entry in self.store.entries.values()],
        }
        return shot

    # which tier

    def _choose(
        self, namespace: str, id_bytes: bytes, cache_id: str | None
    ) -> tuple[Match | None, tuple[Entry, int] | None, bool]:
        """What to reuse: a resident match, and a snapshot where that gives more; and whether one was left unread as too slow.

        Order: resident exact id, resident longest prefix, SSD exact id, SSD longest prefix; a later place wins only with more
        tokens. With a snapshot the match is cut back to whole blocks: the rest is read.
        """
        match = self._match(namespace, id_bytes, cache_id)
        resident_length = match.length if match is not None else 0
        if match is not None and match.terminal is not None and match.terminal.record.cache_id == cache_id and match.is_whole:
            return match, None, False
        found = self.store.find(namespace, id_bytes, cache_id=cache_id, is_cuttable=self._is_cuttable)
        if self._unanswered or found is None or found[1] <= resident_length:
            return match, None, False
        entry, length = found
        shared = match_at(self._graph, root_key(self.identity, namespace), id_bytes[: length * ID_BYTES])
        num_bytes = bytes_to_read(entry, length, _num_whole_blocks(shared, self.layout.block_tokens))
        if not self.rates.is_restore_worth_it(num_bytes, length - resident_length):
            return match, None, True
        return shared, found, False

    def _ssd_hit(self, found: tuple[Entry, int], match: Match | None) -> Hit:
        entry, length = found
        return Hit(length, match.as_hit().blocks if match is not None else (), None, entry.manifest.cache_id, "ssd")

    def _first_round(self, namespace: str, id_bytes: bytes) -> int:
        """A conversation that comes back from SSD goes on counting."""
        return self.store.round_after(namespace, id_bytes)

    # demotion

    def _on_saved(self, state: TerminalState) -> None:
        if self._is_worth_keeping(state):
            self._dirty[state] = None
        predecessor = state.predecessor
        if predecessor is not None and predecessor in self._dirty and not self._is_worth_keeping(predecessor):
            self._forget(predecessor)

    def _is_worth_keeping(self, state: TerminalState) -> bool:
        """Long enough, and not contained in a longer state that can be cut."""
        return state.record.length >= self._least_snapshot_tokens and not (self._is_cuttable and state.successors)

    def _remove(self, state: TerminalState) -> None:
        self._forget(state)
        super()._remove(state)

    def _forget(self, state: TerminalState) -> None:
        self._dirty.pop(state, None)
        self._urgent.pop(state, None)

    def _make_room(self, num_bytes: int) -> bool:
        """Frees clean victims; where they are too few, has dirty ones written, least recently used first, and says not yet."""
        while not self._evict_clean(num_bytes):
            self._ask_for_writing(num_bytes - self.free_bytes)
            self.pump()
            if self._writing is not None:
                return False
            # Nothing is being written: what cannot be written at all is clean by now, and the next round frees it.
        return True

    def _evict_clean(self, num_bytes: int) -> bool:
        for state in list(self._graph.terminals.values()):
            if self.free_bytes >= num_bytes:
                break
            if state.node.pins == 0 and state not in self._dirty:
                self._remove(state)
                self.counts.evictions += 1
        return self.free_bytes >= num_bytes

    def _ask_for_writing(self, num_bytes: int) -> None:
        """Marks dirty victims for writing, enough of them to free that many bytes."""
        for state in self._graph.terminals.values():
            if num_bytes <= 0:
                return
            if state.node.pins == 0:
                self._urgent[state] = None
                num_bytes -= self.layout.rows_bytes(state.record.length) + state.fixed_bytes

    def _soon_available_bytes(self) -> int:
        """What only the writer holds."""
        return sum(node.num_bytes for node in self._writing.node.chain() if node.pins == 1) if self._writing is not None else 0

    def _begin_writing(self, state: TerminalState) -> None:
        chain = state.node.chain()
        request = SaveRequest(
            cache_id=state.record.cache_id,
            namespace=state.record.namespace,
            round=state.record.round,
            resident_bytes=sum(node.num_bytes for node in chain),
            id_bytes=b"".join(node.id_bytes for node in chain),
            payloads=tuple(node.payload for node in chain),
            fixed=state.fixed,
            is_unit=state.record.is_unit,
            is_head=state.is_head,
        )
        job = self.store.plan_save(request, self.codec, self.layout.block_tokens)
        if job is None:
            self._forget(state)
            return
        self._graph.pin(state.node)
        writing = _Writing(job, state, state.node, threading.Event())
        self._writing = writing

        def work() -> None:
            try:
                job.run()
            finally:
                writing.done.set()
                self.wake()

        self._writer.submit(work)

    def _finish_writing(self, writing: _Writing) -> None:
        self._writing = None
        self._forget(writing.state)
        if self.store.finish_save(writing.job) is None:
            self.ssd_counts.saves_failed += 1
        else:
            self.ssd_counts.saves += 1
            self.ssd_counts.save_seconds += writing.job.seconds
        self._graph.unpin(writing.node)

    def _evict_until_free(self, num_bytes: int) -> None:
        lost = len(self._dirty)
        super()._evict_until_free(num_bytes)
        self.ssd_counts.states_lost += lost - len(self._dirty)

    def _pinned_nodes(self) -> list[Node | None]:
        return [*super()._pinned_nodes(), *([self._writing.node] if self._writing is not None else [])]


def _num_whole_blocks(match: Match | None, block_tokens: int) -> int:
    return match.length // block_tokens if match is not None else 0
