"""The prefix graph: blocks as nodes under one root per namespace, terminals as the places where requests ended.

    root ── [128] ── [128] ──┬── [128] ── [ 40]●      ● terminal
                             ├── [ 17]●               a partial block is always a leaf
                             └── [128]●── [128]●      a terminal may end on a full block in mid-chain

A node is found by its parent and its ids: Python's hash of the id bytes finds the candidate, equality of the bytes compares
the tokens. So a hash collision can never join two chains. `key` is the same fact as a portable digest, for other tiers and
for inspectors.

A node lives as long as something needs it: a child, a terminal that ends here, or a pin (a running request that reads it).
Pins go up the whole chain, so an unpinned node never has a pinned descendant, and its bytes can always be freed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from zllm_ref.cache.block import Terminal, TokenIds
from zllm_ref.cache.key import block_key

ID_BYTES = 4


class Node:
    """One block of rows, or a root (no rows, no parent)."""

    __slots__ = (
        "children",
        "end",
        "id_bytes",
        "key",
        "num_bytes",
        "parent",
        "partial_lengths",
        "payload",
        "pins",
        "sorted_children",
        "terminal",
    )

    def __init__(self, parent: Node | None, key: bytes, id_bytes: bytes, payload: object, num_bytes: int) -> None:
        self.parent = parent
        self.key = key
        self.id_bytes = id_bytes
        self.payload = payload
        self.num_bytes = num_bytes
        """Bytes of the rows, and of the fixed tensors of the terminal that ends here."""
        self.end: int = (parent.end if parent is not None else 0) + len(id_bytes) // ID_BYTES
        """Tokens from the root to the end of this block."""
        self.children: dict[bytes, Node] = {}
        self.sorted_children: list[bytes] = []
        """The children's id bytes in order: whoever shares most with a text is its neighbour there."""
        self.partial_lengths: Counter[int] = Counter()
        """How many partial children there are of each length in tokens."""
        self.terminal: TerminalState | None = None
        self.pins = 0

    @property
    def num_tokens(self) -> int:
        return len(self.id_bytes) // ID_BYTES

    @property
    def start(self) -> int:
        return self.end - self.num_tokens

    @property
    def is_needed(self) -> bool:
        return bool(self.children) or self.terminal is not None or self.pins > 0

    def chain(self) -> list[Node]:
        """The nodes from the first block down to this one, the root left out."""
        nodes = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class TerminalState:
    """A terminal in the graph: the public record, the node where it ends, and its place among the rounds of its chain."""

    __slots__ = ("fixed", "fixed_bytes", "node", "predecessor", "record", "successors")

    def __init__(self, record: Terminal, node: Node, fixed: object | None, fixed_bytes: int) -> None:
        self.record = record
        self.node = node
        self.fixed = fixed
        self.fixed_bytes = fixed_bytes
        self.predecessor: TerminalState | None = None
        """The terminal of the round before: the longest one that this one's tokens begin with."""
        self.successors: list[TerminalState] = []

    @property
    def is_head(self) -> bool:
        """No later round is saved."""
        return not self.successors


class PrefixGraph:
    """Blocks and terminals of one cache, and the bytes that they take. Decides nothing: the budget is `PrefixCache`'s."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.roots: dict[bytes, Node] = {}
        self.terminals: OrderedDict[str, TerminalState] = OrderedDict()
        """By cache id, least recently used first."""
        self.total_bytes = 0
        self.pinned_bytes = 0

    def matching_chain(self, root_key: bytes, id_bytes: bytes) -> list[Node]:
        """The root and the full blocks that the ids begin with; empty when the namespace is unknown."""
        node = self.roots.get(root_key)
        if node is None:
            return []
        chain = [node]
        step = self.block_tokens * ID_BYTES
        for start in range(0, len(id_bytes) - step + 1, step):
            child = chain[-1].children.get(id_bytes[start : start + step])
            if child is None:
                break
            chain.append(child)
        return chain

    def prefix_terminals(self, root_key: bytes, id_bytes: bytes) -> Iterator[TerminalState]:
        """All terminals whose tokens the ids begin with, the longest first."""
        for node in reversed(self.matching_chain(root_key, id_bytes)):
            rest = id_bytes[node.end * ID_BYTES : (node.end + self.block_tokens) * ID_BYTES]
            for num_tokens in sorted(node.partial_lengths, reverse=True):
                child = node.children.get(rest[: num_tokens * ID_BYTES]) if num_tokens * ID_BYTES <= len(rest) else None
                if child is not None and child.terminal is not None:
                    yield child.terminal
            if node.terminal is not None:
                yield node.terminal

    def closest_child(self, node: Node, rest: bytes) -> tuple[Node, int] | None:
        """The child that shares most tokens with `rest`, and how many; None when none shares any."""
        best: tuple[Node, int] | None = None
        place = bisect_left(node.sorted_children, rest)
        for id_bytes in node.sorted_children[max(0, place - 1) : place + 1]:
            shared = num_common_tokens(id_bytes, rest)
            if shared and (best is None or shared > best[1]):
                best = (node.children[id_bytes], shared)
        return best

    def root(self, root_key: bytes) -> Node:
        """The root of a namespace, made when it is new. It stays only while something hangs on it."""
        if root_key not in self.roots:
            self.roots[root_key] = Node(None, root_key, b"", None, 0)
        return self.roots[root_key]

    def add_block(self, parent: Node, id_bytes: bytes, payload: object, num_bytes: int) -> Node:
        """Publishes one block under `parent`; its rows must be written already."""
        if parent.num_tokens not in (0, self.block_tokens):
            raise AssertionError(f"block under a partial block of {parent.num_tokens} tokens")
        node = Node(parent, block_key(parent.key, id_bytes), id_bytes, payload, num_bytes)
        parent.children[id_bytes] = node
        insort(parent.sorted_children, id_bytes)
        if node.num_tokens < self.block_tokens:
            parent.partial_lengths[node.num_tokens] += 1
        self.total_bytes += num_bytes
        return node

    def add_terminal(
        self, record: Terminal, node: Node, fixed: object | None, fixed_bytes: int, predecessor: TerminalState | None
    ) -> TerminalState:
        """Names `node` as the end of a request; a node carries one terminal at most."""
        state = TerminalState(record, node, fixed, fixed_bytes)
        node.terminal = state
        self._grow(node, fixed_bytes)
        self.terminals[record.cache_id] = state
        if predecessor is not None:
            self._link(predecessor, state)
        return state

    def rename_terminal(self, state: TerminalState, cache_id: str) -> None:
        """Gives the terminal the name of a request that ended here too, and makes it the most recently used one.

        The old name leads nowhere from now on.
        """
        del self.terminals[state.record.cache_id]
        state.record = replace(state.record, cache_id=cache_id, is_unit=False)
        self.terminals[cache_id] = state

    def remove_terminal(self, state: TerminalState) -> int:
        """Takes the terminal away and frees every block that nothing else needs; returns the bytes freed."""
        before = self.total_bytes
        del self.terminals[state.record.cache_id]
        if state.predecessor is not None:
            state.predecessor.successors.remove(state)
        for later in state.successors:
            later.predecessor = None
            if state.predecessor is not None:
                self._link(state.predecessor, later)
        state.node.terminal = None
        self._grow(state.node, -state.fixed_bytes)
        self.drop_unneeded(state.node)
        return before - self.total_bytes

    def touch(self, state: TerminalState) -> None:
        """Marks the terminal as the most recently used one."""
        self.terminals.move_to_end(state.record.cache_id)

    def pin(self, node: Node) -> None:
        """Protects the node and all before it, the root too, from being freed."""
        link: Node | None = node
        while link is not None:
            link.pins += 1
            if link.pins == 1:
                self.pinned_bytes += link.num_bytes
            link = link.parent

    def unpin(self, node: Node) -> None:
        """Takes one pin back, and frees what only that pin kept."""
        link: Node | None = node
        while link is not None:
            link.pins -= 1
            if link.pins == 0:
                self.pinned_bytes -= link.num_bytes
            link = link.parent
        self.drop_unneeded(node)

    def drop_unneeded(self, node: Node) -> None:
        """Frees the node if nothing needs it, and then its parent on the same terms, up to the root."""
        while not node.is_needed:
            parent = node.parent
            if parent is None:
                del self.roots[node.key]
                return
            del parent.children[node.id_bytes]
            del parent.sorted_children[bisect_left(parent.sorted_children, node.id_bytes)]
            if node.num_tokens < self.block_tokens:
                parent.partial_lengths[node.num_tokens] -= 1
                if not parent.partial_lengths[node.num_tokens]:
                    del parent.partial_lengths[node.num_tokens]
            self.total_bytes -= node.num_bytes
            node = parent

    def nodes(self) -> Iterator[Node]:
        """Every node, roots included, parents before children."""
        stack = list(self.roots.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _link(self, predecessor: TerminalState, state: TerminalState) -> None:
        state.predecessor = predecessor
        predecessor.successors.append(state)

    def _grow(self, node: Node, num_bytes: int) -> None:
        node.num_bytes += num_bytes
        self.total_bytes += num_bytes
        if node.pins:
            self.pinned_bytes += num_bytes


def id_bytes_of(ids: TokenIds) -> bytes:
    """The ids as little-endian int32 bytes: what blocks are compared and keyed by."""
    return ids.astype("<i4", copy=False).tobytes()


def ids_of(id_bytes: bytes) -> TokenIds:
    """The ids that `id_bytes_of` wrote."""
    return np.frombuffer(id_bytes, dtype="<i4").astype(np.int32)


def num_common_tokens(first: bytes, second: bytes) -> int:
    """How many whole tokens the two id strings have in common from their beginning."""
    length = min(len(first), len(second)) // ID_BYTES
    differs = np.frombuffer(first, dtype="<i4", count=length) != np.frombuffer(second, dtype="<i4", count=length)
    position = int(differs.argmax()) if length else 0
    return position if length and bool(differs[position]) else length
