"""Looks for near misses at every admission: the few saved states that a prompt could have nearly reused, in both tiers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from zllm_ref.cache.key import root_key
from zllm_ref.cache.lookup import find_longest
from zllm_ref.cache.near_miss import NearMiss, NearMissPolicy, likest_near_miss, log_near_miss
from zllm_ref.cache.prefix_graph import ID_BYTES, PrefixGraph, TerminalState
from zllm_ref.cache.ssd.store import SnapshotStore

_RECENT_STATES = 4
"""How many recently used states are compared with a prompt that shares no beginning with any."""


class NearMissWatch:
    """Tells `on_near_miss` (a log line, where none is given) of prompts that nearly had a hit."""

    def __init__(
        self,
        graph: PrefixGraph,
        store: SnapshotStore,
        identity: str,
        policy: NearMissPolicy | None,
        on_near_miss: Callable[[NearMiss], None] | None,
    ) -> None:
        self._graph = graph
        self._store = store
        self._identity = identity
        self._policy = policy or NearMissPolicy()
        self._on_near_miss = on_near_miss or log_near_miss

    def look(self, namespace: str, id_bytes: bytes, reused_length: int) -> bool:
        """Compares the prompt with the states closest to it, and with a few recent ones; reports the likest. True: one."""
        if len(id_bytes) // ID_BYTES < self._policy.least_common_tokens:
            return False
        miss = likest_near_miss(
            self._policy,
            self._candidates(namespace, id_bytes).items(),
            namespace=namespace,
            prompt=id_bytes,
            reused_length=reused_length,
        )
        if miss is not None:
            self._on_near_miss(miss)
        return miss is not None

    def _candidates(self, namespace: str, id_bytes: bytes) -> dict[str, bytes]:
        """Tokens of saved states by cache id."""
        found: dict[str, bytes] = {}
        closest = find_longest(self._graph, root_key(self._identity, namespace), id_bytes, is_cuttable=True)
        if closest is not None and closest.terminal is not None:
            found[closest.terminal.record.cache_id] = _tokens_of(closest.terminal)
        on_ssd = self._store.closest(namespace, id_bytes)
        if on_ssd is not None:
            found[on_ssd[0].manifest.cache_id] = on_ssd[0].id_bytes
        for state in islice(reversed(self._graph.terminals.values()), _RECENT_STATES):
            if state.record.namespace == namespace:
                found[state.record.cache_id] = _tokens_of(state)
        for entry in islice(reversed(self._store.entries.values()), _RECENT_STATES):
            manifest = entry.manifest
            if (manifest.identity, manifest.namespace) == (self._identity, namespace):
                found[manifest.cache_id] = manifest.id_bytes
        return found


def _tokens_of(state: TerminalState) -> bytes:
    return b"".join(node.id_bytes for node in state.node.chain())
