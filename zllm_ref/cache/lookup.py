"""The longest saved prefix of a prompt: pure questions to the prefix graph, no bookkeeping.

    cuttable state     root ─ full blocks while they match ─ then the child that shares most, cut there
    whole states only  the longest terminal whose tokens are all in the prompt

Both look at the prompt without its last token, because that one is always computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from zllm_ref.cache.block import BlockUse, Hit
from zllm_ref.cache.prefix_graph import ID_BYTES, Node, PrefixGraph, TerminalState


@dataclass(frozen=True)
class Match:
    """Where in the graph a prompt's reusable prefix ends: `num_rows` rows into `node`, and a terminal that holds them.

    No terminal: only a running request still holds these rows, the one that named them was replaced or evicted meanwhile.
    """

    node: Node
    num_rows: int
    terminal: TerminalState | None

    @property
    def length(self) -> int:
        return self.node.start + self.num_rows

    @property
    def is_whole(self) -> bool:
        """The match is the terminal's whole state, not cut short of its end."""
        return self.terminal is not None and self.terminal.record.length == self.length

    def as_hit(self) -> Hit:
        """The match as what the runtime copies."""
        chain = self.node.chain()
        blocks = [BlockUse(node.payload, node.start, node.num_tokens) for node in chain[:-1]]
        blocks.append(BlockUse(self.node.payload, self.node.start, self.num_rows))
        if self.terminal is None:
            return Hit(self.length, tuple(blocks), None, None)
        return Hit(self.length, tuple(blocks), self.terminal.fixed if self.is_whole else None, self.terminal.record.cache_id)


def find_exact(graph: PrefixGraph, root_key: bytes, id_bytes: bytes, cache_id: str, is_cuttable: bool) -> Match | None:
    """The terminal of that name, if it is the beginning of this very prompt; a name proves nothing by itself."""
    state = graph.terminals.get(cache_id)
    if state is None:
        return None
    chain = state.node.chain()
    tokens = b"".join(node.id_bytes for node in chain)
    if graph.roots.get(root_key) is not chain[0].parent or tokens != id_bytes[: len(tokens)]:
        return None
    return _cut(state, chain, len(id_bytes) // ID_BYTES - 1, is_cuttable)


def find_longest(graph: PrefixGraph, root_key: bytes, id_bytes: bytes, is_cuttable: bool) -> Match | None:
    """The longest reusable prefix, shorter than the prompt."""
    id_bytes = id_bytes[:-ID_BYTES]
    if not is_cuttable:
        state = next(graph.prefix_terminals(root_key, id_bytes), None)
        return Match(state.node, state.node.num_tokens, state) if state is not None else None

    chain = graph.matching_chain(root_key, id_bytes)
    if not chain:
        return None
    closest = graph.closest_child(chain[-1], id_bytes[chain[-1].end * ID_BYTES : (chain[-1].end + graph.block_tokens) * ID_BYTES])
    node, num_rows = closest if closest is not None else (chain[-1], chain[-1].num_tokens)
    if node.parent is None:
        return None
    return Match(node, num_rows, _any_terminal(node, node.start + num_rows))


def match_at(graph: PrefixGraph, root_key: bytes, id_bytes: bytes) -> Match | None:
    """The whole blocks that the graph has of these tokens, whether or not a state may be cut there."""
    chain = graph.matching_chain(root_key, id_bytes)
    if len(chain) < 2:
        return None
    return Match(chain[-1], chain[-1].num_tokens, _any_terminal(chain[-1], chain[-1].end))


def shorten(match: Match, most_bytes: int, is_cuttable: bool) -> Match | None:
    """The match without its last blocks, so that what is left takes at most `most_bytes`; None: nothing usable is left."""
    total = 0
    last: Node | None = None
    for node in match.node.chain():
        total += node.num_bytes
        if total > most_bytes:
            break
        last = node
    if last is match.node:
        return match
    if last is None or not is_cuttable:
        return None
    return Match(last, last.num_tokens, _any_terminal(last, last.end))


def _cut(state: TerminalState, chain: list[Node], longest: int, is_cuttable: bool) -> Match | None:
    """The terminal's whole state, or its first `longest` tokens where it may be cut."""
    if state.record.length <= longest:
        return Match(state.node, state.node.num_tokens, state)
    if not is_cuttable or longest < 1:
        return None
    node = next(link for link in chain if link.end >= longest)
    return Match(node, longest - node.start, state)


def _any_terminal(node: Node, length: int) -> TerminalState | None:
    """A terminal that holds the first `length` tokens of this node's chain: the one that ends there, else one below it."""
    if node.terminal is not None and node.end == length:
        return node.terminal
    below = node
    while below.terminal is None and below.children:
        below = next(iter(below.children.values()))
    return below.terminal
