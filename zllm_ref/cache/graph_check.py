"""The cache seen from outside: the prefix graph's invariants recounted from nothing, and all contents as plain data."""

from __future__ import annotations

from typing import Any

from zllm_ref.cache.block import StateLayout
from zllm_ref.cache.key import block_key
from zllm_ref.cache.prefix_graph import ID_BYTES, Node, PrefixGraph, TerminalState
from zllm_ref.cache.ssd.store import Entry


def check_graph(graph: PrefixGraph, layout: StateLayout) -> None:
    """Raises AssertionError when shape, references or byte sums are not what they must be."""
    total_bytes = 0
    pinned_bytes = 0
    terminals: dict[str, TerminalState] = {}
    for node in graph.nodes():
        where = f"block {node.key.hex()} at {node.start}"
        _check_links(graph, node, where)
        fixed_bytes = node.terminal.fixed_bytes if node.terminal is not None else 0
        assert node.num_bytes == layout.rows_bytes(node.num_tokens) + fixed_bytes, f"{where}: {node.num_bytes} bytes"
        assert node.is_needed, f"{where}: an orphan, nothing needs it"
        assert node.pins >= max((child.pins for child in node.children.values()), default=0), f"{where}: pins do not reach up"
        total_bytes += node.num_bytes
        pinned_bytes += node.num_bytes if node.pins else 0
        if node.terminal is not None:
            _check_terminal(node.terminal, node, where)
            terminals[node.terminal.record.cache_id] = node.terminal
    assert graph.total_bytes == total_bytes, f"total bytes: got {graph.total_bytes}, counted {total_bytes}"
    assert graph.pinned_bytes == pinned_bytes, f"pinned bytes: got {graph.pinned_bytes}, counted {pinned_bytes}"
    assert dict(graph.terminals) == terminals, "terminals by name are not the terminals in the graph"


def describe_block(node: Node) -> dict[str, Any]:
    """One block for an inspector: who it hangs on, where its rows belong, who needs it."""
    return {
        "key": node.key.hex(),
        "parent": node.parent.key.hex() if node.parent is not None else None,
        "start": node.start,
        "num_tokens": node.num_tokens,
        "num_bytes": node.num_bytes,
        "pins": node.pins,
        "num_children": len(node.children),
        "cache_id": node.terminal.record.cache_id if node.terminal is not None else None,
    }


def describe_terminal(state: TerminalState) -> dict[str, Any]:
    """One terminal for an inspector."""
    return {
        "cache_id": state.record.cache_id,
        "namespace": state.record.namespace,
        "length": state.record.length,
        "round": state.record.round,
        "is_head": state.is_head,
        "is_pinned": state.node.pins > 0,
        "block": state.node.key.hex(),
        "predecessor": state.predecessor.record.cache_id if state.predecessor is not None else None,
    }


def describe_snapshot(entry: Entry) -> dict[str, Any]:
    """One snapshot on SSD for an inspector."""
    return {
        "cache_id": entry.manifest.cache_id,
        "namespace": entry.manifest.namespace,
        "length": entry.manifest.length,
        "generation": entry.manifest.generation,
        "readers": entry.readers,
    }


def _check_links(graph: PrefixGraph, node: Node, where: str) -> None:
    assert node.sorted_children == sorted(node.children), f"{where}: the ordered children are not the children"
    for id_bytes, child in node.children.items():
        assert child.parent is node, f"{where}: a child hangs on another block"
        assert child.id_bytes == id_bytes, f"{where}: a child under other ids than its own"
        assert child.key == block_key(node.key, id_bytes), f"{where}: a child's key is not the digest of its chain"
        assert child.end == node.end + len(id_bytes) // ID_BYTES, f"{where}: a child at the wrong position"
    partial = [child.num_tokens for child in node.children.values() if child.num_tokens < graph.block_tokens]
    assert sorted(node.partial_lengths.elements()) == sorted(partial), f"{where}: partial lengths"
    if node.parent is None:
        assert graph.roots[node.key] is node, f"{where}: a root that is not registered"
        assert node.terminal is None, f"{where}: a terminal of no tokens"
    else:
        assert 1 <= node.num_tokens <= graph.block_tokens, f"{where}: {node.num_tokens} tokens"
        assert node.num_tokens == graph.block_tokens or not node.children, f"{where}: a partial block with children"


def _check_terminal(state: TerminalState, node: Node, where: str) -> None:
    assert state.node is node, f"{where}: its terminal ends elsewhere"
    assert state.record.length == node.end, f"{where}: a terminal of {state.record.length} tokens ends at {node.end}"
    if state.predecessor is not None:
        assert state in state.predecessor.successors, f"{where}: its predecessor does not know it"
        assert state.predecessor.record.length < state.record.length, f"{where}: its predecessor is not shorter"
    for later in state.successors:
        assert later.predecessor is state, f"{where}: a successor of another terminal"
