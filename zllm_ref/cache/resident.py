"""The resident tier: one byte budget for running sessions and for the states that finished ones left behind.

    capacity = free + resident (saved, nobody reads it) + pinned (saved, a running request reads it) + reserved (sessions)

`admit` takes all that a request can ever need, or nothing. So nobody who runs ever waits for bytes, and whoever waits, waits
for somebody who will finish. Saved states that nobody reads are no obstacle: they are freed, the least recently used first.

Not thread-safe, on purpose: one thread, the one that runs the device, calls everything here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from zllm_ref.cache.admission import Admission, AdmissionImpossible
from zllm_ref.cache.block import Hit, StateLayout, StateSource, Terminal, TokenIds, as_token_ids
from zllm_ref.cache.counts import CacheCounts
from zllm_ref.cache.graph_check import check_graph, describe_block, describe_terminal
from zllm_ref.cache.key import root_key
from zllm_ref.cache.lookup import Match, find_exact, find_longest, shorten
from zllm_ref.cache.prefix_graph import ID_BYTES, Node, PrefixGraph, TerminalState, id_bytes_of
from zllm_ref.cache.units import UnitPolicy


@dataclass
class _Holding:
    """What an admission still has of the budget."""

    session_bytes: int
    keep_bytes: int
    keeps: bool
    pinned: Node | None


class PrefixCache:
    """Saved states by token prefix, within a budget of bytes that running sessions share with them.

    `identity` stands for model, weights, numerics and dialect revision: states of another identity do not exist here.
    `prefix_rounds` ancestors of a committed terminal keep their own names and tails; older ones are given up, their blocks
    stay as far as the younger ones begin with them. `whole_states_only` treats a cuttable layout like one that cannot be cut.
    `units` says which states on the way are kept too, where states cannot be cut.
    """

    def __init__(
        self,
        layout: StateLayout,
        capacity_bytes: int,
        *,
        identity: str,
        prefix_rounds: int = 4,
        whole_states_only: bool = False,
        units: UnitPolicy | None = None,
        new_cache_id: Callable[[], str] | None = None,
    ) -> None:
        if capacity_bytes < 0 or prefix_rounds < 0:
            raise ValueError(f"prefix cache: got capacity_bytes {capacity_bytes}, prefix_rounds {prefix_rounds}, allowed >= 0")
        self.layout = layout
        self.capacity_bytes = capacity_bytes
        self.identity = identity
        self.prefix_rounds = prefix_rounds
        self.units = units or UnitPolicy()
        self.counts = CacheCounts()
        self._is_cuttable = layout.cuttable and not whole_states_only
        self._new_cache_id = new_cache_id or (lambda: "cache_" + secrets.token_hex(12))
        self._graph = PrefixGraph(layout.block_tokens)
        self._holdings: dict[str, _Holding] = {}
        self._reserved_bytes = 0

    @property
    def graph(self) -> PrefixGraph:
        """For those who look: nobody changes it but the cache."""
        return self._graph

    @property
    def is_cuttable(self) -> bool:
        """A saved state may be reused up to any token."""
        return self._is_cuttable

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self._graph.total_bytes - self._reserved_bytes

    @property
    def resident_bytes(self) -> int:
        """Saved states that nobody reads: they can be freed."""
        return self._graph.total_bytes - self._graph.pinned_bytes

    @property
    def pinned_bytes(self) -> int:
        """Saved states that running requests read, each counted once."""
        return self._graph.pinned_bytes

    @property
    def reserved_bytes(self) -> int:
        """Session buffers, and what is set aside for commits to come."""
        return self._reserved_bytes

    def lookup(self, namespace: str, ids: TokenIds, *, cache_id: str | None = None) -> Hit | None:
        """What a request with this prompt could reuse now: by exact id, else by longest prefix. Changes nothing."""
        match = self._match(namespace, id_bytes_of(as_token_ids(ids)), cache_id)
        return match.as_hit() if match is not None else None

    def admit(self, namespace: str, ids: TokenIds, *, reserve_bytes: int, cache_id: str | None = None) -> Admission | None:
        """Looks up, pins, frees victims and reserves, all or nothing. None: wait until somebody releases, then ask again.

        Raises AdmissionImpossible when `reserve_bytes` is more than the whole budget. A hit that could never be held beside
        the session buffer is shortened instead.
        """
        id_bytes = id_bytes_of(as_token_ids(ids))
        self._refuse_impossible(reserve_bytes)
        admission, match = self._admit(namespace, id_bytes, self._match(namespace, id_bytes, cache_id), reserve_bytes)
        if admission is not None and match is not None:
            self.counts.hits += 1
        elif admission is not None:
            self.counts.misses += 1
        return admission

    def _refuse_impossible(self, reserve_bytes: int) -> None:
        if reserve_bytes < 0:
            raise ValueError(f"reserve_bytes: got {reserve_bytes}, allowed >= 0")
        if reserve_bytes > self.capacity_bytes:
            raise AdmissionImpossible(f"reserve_bytes: got {reserve_bytes}, allowed at most the budget of {self.capacity_bytes}")

    def _admit(
        self, namespace: str, id_bytes: bytes, match: Match | None, reserve_bytes: int, reused_length: int | None = None
    ) -> tuple[Admission | None, Match | None]:
        """Pins, makes room and reserves for a match that was found; also says what of the match was affordable.

        `reused_length`: what is reused in all, where another tier gives more than the match.
        """
        if match is not None:
            match = shorten(match, self.capacity_bytes - reserve_bytes, self._is_cuttable)
        if match is not None:
            self._graph.pin(match.node)
        available = self.free_bytes + self.resident_bytes

        # What the session can hold and the graph does not: room for it now makes the promise to keep it a safe one.
        if reused_length is None:
            reused_length = match.length if match is not None else 0
        units = self._planned_units(namespace, id_bytes, reused_length)
        shared_rows = 0 if match is None else match.length // self.layout.block_tokens * self.layout.block_tokens
        unit_bytes = self.layout.rows_bytes(self.layout.block_tokens - 1) + self.layout.fixed_bytes  # its last block, partial
        keep_bytes = max(0, reserve_bytes - self.layout.rows_bytes(shared_rows)) + len(units) * unit_bytes
        keeps = reserve_bytes + keep_bytes <= available + self._soon_available_bytes()
        if not keeps:
            keep_bytes = 0
        if reserve_bytes + keep_bytes > available or not self._make_room(reserve_bytes + keep_bytes):
            if match is not None:
                self._graph.unpin(match.node)
            self.counts.waits += 1
            return None, None

        self._reserved_bytes += reserve_bytes + keep_bytes
        admission = Admission(
            cache_id=self._unused_cache_id(),
            namespace=namespace,
            hit=match.as_hit() if match is not None else None,
            reserved_bytes=reserve_bytes,
            keep_bytes=keep_bytes,
            will_keep=keeps and self.units.end_of_answer,
            units=units if keeps else (),
        )
        self._holdings[admission.cache_id] = _Holding(reserve_bytes, keep_bytes, keeps, match.node if match is not None else None)
        if match is not None and match.terminal is not None and match.is_whole:
            self._graph.touch(match.terminal)
        return admission, match

    def _planned_units(self, namespace: str, id_bytes: bytes, reused_length: int) -> tuple[int, ...]:
        """Where a prefill should stop to keep a whole state; nowhere, if saved states can be cut anyway."""
        if self._is_cuttable:
            return ()
        common = find_longest(self._graph, root_key(self.identity, namespace), id_bytes, is_cuttable=True)
        return self.units.planned(len(id_bytes) // ID_BYTES, reused_length, common.length if common is not None else 0)

    def release(self, admission: Admission) -> None:
        """Gives back all that the admission holds: on success after its commit, on failure, on cancel. Twice is once."""
        holding = self._holdings.pop(admission.cache_id, None)
        if holding is None:
            return
        self._reserved_bytes -= holding.session_bytes + holding.keep_bytes
        if holding.pinned is not None:
            self._graph.unpin(holding.pinned)
        state = self._graph.terminals.get(admission.cache_id)
        if state is not None:
            self._give_up_old_rounds(state)

    def commit(self, admission: Admission, ids: TokenIds, source: StateSource) -> Terminal | None:
        """Keeps the state that `source` holds after exactly `ids`; call it between success and release.

        Only rows that the graph lacks are copied, and nothing is visible before all of them are (an exception of the copy
        leaves the graph as it was). None when it is not kept: no room, or nothing to keep.
        """
        return self._commit(admission, as_token_ids(ids), source, admission.cache_id)

    def commit_unit(self, admission: Admission, ids: TokenIds, source: StateSource) -> Terminal | None:
        """Like `commit`, for a point on the way (the end of the prompt, a fork): kept under a name of its own."""
        return self._commit(admission, as_token_ids(ids), source, self._unused_cache_id())

    def _commit(self, admission: Admission, ids: TokenIds, source: StateSource, cache_id: str) -> Terminal | None:
        holding = self._holdings.get(admission.cache_id)
        if holding is None:
            raise ValueError(f"commit: got released admission {admission.cache_id}, allowed one that is still held")
        if not len(ids) or not holding.keeps or (cache_id == admission.cache_id and not admission.will_keep):
            self.counts.not_kept += 1
            return None

        id_bytes = id_bytes_of(ids)
        base, missing = self._end_of_known(admission.namespace, id_bytes)
        if not missing and base.terminal is not None:  # the same tokens have the same state
            if cache_id == admission.cache_id:
                self._graph.rename_terminal(base.terminal, cache_id)
            else:
                self._graph.touch(base.terminal)
            self.counts.commits += 1
            return replace(base.terminal.record, written_bytes=0)

        self._graph.pin(base)  # the blocks to build upon are no victims
        try:
            return self._write(admission, holding, source, cache_id, id_bytes, base, missing)
        finally:
            self._graph.unpin(base)

    def _write(
        self,
        admission: Admission,
        holding: _Holding,
        source: StateSource,
        cache_id: str,
        id_bytes: bytes,
        base: Node,
        missing: list[tuple[int, int]],
    ) -> Terminal | None:
        """Copies the missing blocks and publishes them under `base`, if the budget has room for them."""
        needed = sum(self.layout.rows_bytes(end - start) for start, end in missing) + self.layout.fixed_bytes
        borrowed = min(needed, holding.keep_bytes)
        if needed - borrowed > self.free_bytes + self.resident_bytes:
            self.counts.not_kept += 1
            return None
        payloads = [source.copy_rows(start, end) for start, end in missing]
        fixed = source.copy_fixed()
        fixed_bytes = self.layout.fixed_bytes if fixed is not None else 0
        if fixed_bytes != self.layout.fixed_bytes and not self.layout.cuttable:
            raise ValueError(
                f"commit: got no fixed state, allowed {self.layout.fixed_bytes} bytes: the state cannot do without it"
            )

        # From here on nothing can fail: the rows exist, now they may be seen.
        holding.keep_bytes -= borrowed
        self._reserved_bytes -= borrowed
        self._evict_until_free(needed)
        node = base
        for (start, end), payload in zip(missing, payloads, strict=True):
            block_bytes = id_bytes[start * ID_BYTES : end * ID_BYTES]
            node = self._graph.add_block(node, block_bytes, payload, self.layout.rows_bytes(end - start))
        predecessor = next(self._graph.prefix_terminals(root_key(self.identity, admission.namespace), id_bytes), None)
        if predecessor is None:
            round_number = self._first_round(admission.namespace, id_bytes)
        else:
            round_number = predecessor.record.round + (not predecessor.record.is_unit)
        written_bytes = needed - self.layout.fixed_bytes + fixed_bytes
        is_unit = cache_id != admission.cache_id
        record = Terminal(cache_id, admission.namespace, node.end, round_number, written_bytes, is_unit)
        self._on_saved(self._graph.add_terminal(record, node, fixed, fixed_bytes, predecessor))
        self.counts.commits += 1
        return record

    def _first_round(self, namespace: str, id_bytes: bytes) -> int:
        """The round of a state that continues nothing resident."""
        return 0

    def _soon_available_bytes(self) -> int:
        """Pinned bytes that no request holds and that come free by themselves: worth a short wait."""
        return 0

    def _make_room(self, num_bytes: int) -> bool:
        """Frees victims until `num_bytes` are free; False: not now, ask again later. The caller knows that there is enough."""
        self._evict_until_free(num_bytes)
        return True

    def _on_saved(self, state: TerminalState) -> None:
        """A terminal came into the graph."""

    def _remove(self, state: TerminalState) -> None:
        """A terminal goes, for whatever reason."""
        self._graph.remove_terminal(state)

    def _match(self, namespace: str, id_bytes: bytes, cache_id: str | None) -> Match | None:
        key = root_key(self.identity, namespace)
        exact = find_exact(self._graph, key, id_bytes, cache_id, self._is_cuttable) if cache_id is not None else None
        return exact if exact is not None else find_longest(self._graph, key, id_bytes, self._is_cuttable)

    def _end_of_known(self, namespace: str, id_bytes: bytes) -> tuple[Node, list[tuple[int, int]]]:
        """The node up to which the graph has these tokens, and the row ranges of the blocks that it lacks."""
        key = root_key(self.identity, namespace)
        self._graph.root(key)
        node = self._graph.matching_chain(key, id_bytes)[-1]
        tail = node.children.get(id_bytes[node.end * ID_BYTES :])
        if tail is not None:
            return tail, []
        num_tokens = len(id_bytes) // ID_BYTES
        step = self.layout.block_tokens
        return node, [(start, min(start + step, num_tokens)) for start in range(node.end, num_tokens, step)]

    def _give_up_old_rounds(self, state: TerminalState) -> None:
        """Takes away the ancestors of more than `prefix_rounds` rounds ago, except where another conversation forks or somebody
        reads. A unit goes with its round."""
        num_rounds = 0
        ancestor = state.predecessor
        while ancestor is not None:
            older = ancestor.predecessor
            num_rounds += not ancestor.record.is_unit
            if num_rounds > self.prefix_rounds and len(ancestor.successors) == 1 and ancestor.node.pins == 0:
                self._remove(ancestor)
            ancestor = older

    def _evict_until_free(self, num_bytes: int) -> None:
        """Frees saved states, the least recently used first, until `num_bytes` are free; the caller knows that it will do."""
        while self.free_bytes < num_bytes:
            victim = next(state for state in self._graph.terminals.values() if state.node.pins == 0)
            self._remove(victim)
            self.counts.evictions += 1

    def _unused_cache_id(self) -> str:
        for _ in range(8):
            cache_id = self._new_cache_id()
            if cache_id not in self._graph.terminals and cache_id not in self._holdings:
                return cache_id
        raise RuntimeError(f"new_cache_id: got {cache_id!r} again and again, allowed a fresh name each time")

    def check(self) -> None:
        """Recounts everything and raises AssertionError where the books are wrong; cheap enough to follow every test step."""
        check_graph(self._graph, self.layout)
        assert self._reserved_bytes == sum(holding.session_bytes + holding.keep_bytes for holding in self._holdings.values())
        assert self.free_bytes >= 0, f"free bytes: got {self.free_bytes}, allowed >= 0"
        total = self.free_bytes + self.resident_bytes + self.pinned_bytes + self.reserved_bytes
        assert total == self.capacity_bytes, f"accounts: got {total}, allowed {self.capacity_bytes}"
        pins: dict[int, int] = {}
        for link in self._pinned_nodes():
            while link is not None:
                pins[id(link)] = pins.get(id(link), 0) + 1
                link = link.parent
        for node in self._graph.nodes():
            assert node.pins == pins.pop(id(node), 0), f"block {node.key.hex()}: {node.pins} pins, not one for each reader"
        assert not pins, f"{len(pins)} pinned blocks are not in the graph"

    def _pinned_nodes(self) -> list[Node | None]:
        """The node of every pin that is held now."""
        return [holding.pinned for holding in self._holdings.values()]

    def snapshot(self) -> dict[str, Any]:
        """The graph and the accounts as plain data, for an inspector."""
        return {
            "identity": self.identity,
            "capacity_bytes": self.capacity_bytes,
            "free_bytes": self.free_bytes,
            "resident_bytes": self.resident_bytes,
            "pinned_bytes": self.pinned_bytes,
            "reserved_bytes": self.reserved_bytes,
            "counts": asdict(self.counts),
            "blocks": [describe_block(node) for node in self._graph.nodes()],
            "terminals": [describe_terminal(state) for state in self._graph.terminals.values()],
        }
