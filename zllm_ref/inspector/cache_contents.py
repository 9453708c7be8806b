"""What the cache holds, as a tree: every trunk once, both tiers beside each other.

Read from another thread than the cache's own: each list is copied in one go, so the picture may be one step old in places, and
never holds the cache up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zllm_ref.cache.key import root_key
from zllm_ref.cache.prefix_graph import ID_BYTES, ids_of
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.inspector.nearest import SavedState
from zllm_ref.tokenizer.vocabulary import Vocabulary

MOST_NODES = 2_000
_SHOWN = 80
_SHOWN_TOKENS = 40

Mine = Callable[[str], bool]
"""Whether a namespace is the caller's."""


@dataclass
class _State:
    cache_id: str
    namespace: str
    length: int
    round: int
    is_unit: bool
    is_resident: bool = False
    is_on_ssd: bool = False


@dataclass
class _Block:
    key: bytes
    start: int
    id_bytes: bytes
    num_bytes: int
    is_resident: bool = False
    is_on_ssd: bool = False
    pins: int = 0
    states: dict[str, _State] = field(default_factory=dict)
    children: dict[bytes, _Block] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.id_bytes) // ID_BYTES


@dataclass(frozen=True)
class Use:
    """Which recorded request left a state, and when it was last used (milliseconds since 1970)."""

    request_id: str | None
    at_ms: float


def gauge(cache: PrefixCache) -> dict[str, Any]:
    """The budget, and who has it."""
    ssd = cache.store if isinstance(cache, TieredCache) else None
    return {
        "resident_bytes": cache.resident_bytes,
        "capacity_bytes": cache.capacity_bytes,
        "pinned_bytes": cache.pinned_bytes,
        "reserved_bytes": cache.reserved_bytes,
        "ssd_bytes": ssd.used_bytes if ssd is not None else 0,
        "ssd_capacity_bytes": ssd.capacity_bytes if ssd is not None else None,
        "num_states": len({*list(cache.graph.terminals), *(list(ssd.entries) if ssd is not None else ())}),
        "num_blocks": sum(1 for node in cache.graph.nodes() if node.parent is not None),
    }


def saved_states(cache: PrefixCache, mine: Mine) -> list[SavedState]:
    """Every saved state of the caller's namespaces, of whatever identity, in either tier."""
    found = []
    for state in list(cache.graph.terminals.values()):
        if mine(state.record.namespace):
            tokens = b"".join(node.id_bytes for node in state.node.chain())
            found.append(SavedState(state.record.cache_id, state.record.namespace, cache.identity, tokens))
    if isinstance(cache, TieredCache):
        for entry in list(cache.store.entries.values()):
            one = entry.manifest
            if mine(one.namespace):
                found.append(SavedState(one.cache_id, one.namespace, one.identity, one.id_bytes))
    return found


def tree(
    cache: PrefixCache, vocabulary: Vocabulary, mine: Mine, uses: Mapping[str, Use], own: str, *, shows_text: bool
) -> dict[str, Any]:
    """The caller's part of the prefix graph; `own` is a namespace that may have running requests and no state yet."""
    roots, order = _collect(cache, mine, own)
    budget = [MOST_NODES]
    cut = [0]
    shown = [node for root in roots for node in _runs(root, vocabulary, uses, order, budget, cut, shows_text=shows_text)]
    return {"gauge": gauge(cache), "roots": shown, "cut": cut[0]}


def kept_blocks(cache: PrefixCache, namespace: str, id_bytes: bytes) -> list[str | None]:
    """For each block of these tokens where it is now: resident, ssd, both, or nowhere."""
    step = cache.layout.block_tokens * ID_BYTES
    chain = cache.graph.matching_chain(root_key(cache.identity, namespace), id_bytes)
    num_resident = max(0, len(chain) - 1)
    tail = None
    if chain and num_resident * step < len(id_bytes):
        rest = id_bytes[num_resident * step :]
        tail = next((child for ids, child in list(chain[-1].children.items()) if rest.startswith(ids)), None)
    num_saved = 0
    if isinstance(cache, TieredCache):
        for entry in list(cache.store.entries.values()):
            if entry.manifest.namespace == namespace and entry.manifest.identity == cache.identity:
                num_saved = max(num_saved, _num_common_blocks(entry.id_bytes, id_bytes, step))
    kept: list[str | None] = []
    for index in range(-(-len(id_bytes) // step)):
        is_resident = index < num_resident or (index == num_resident and tail is not None)
        is_saved = index < num_saved
        kept.append("both" if is_resident and is_saved else "resident" if is_resident else "ssd" if is_saved else None)
    return kept


def _num_common_blocks(saved: bytes, wanted: bytes, step: int) -> int:
    """Blocks, a last partial one included, that both have."""
    count = 0
    while count * step < len(saved) and saved[count * step : (count + 1) * step] == wanted[count * step : (count + 1) * step]:
        count += 1
    if count * step < len(saved) and wanted[count * step :].startswith(saved[count * step :]):
        count += 1
    return count


def _collect(cache: PrefixCache, mine: Mine, own: str) -> tuple[list[_Block], dict[str, int]]:
    """Roots of the caller's namespaces with all their blocks, and the states by last use (0: used last)."""
    terminals = list(cache.graph.terminals.values())
    entries = list(cache.store.entries.values()) if isinstance(cache, TieredCache) else []
    namespaces = {state.record.namespace for state in terminals} | {entry.manifest.namespace for entry in entries} | {own}
    names = [state.record.cache_id for state in reversed(terminals)]
    names += [entry.manifest.cache_id for entry in reversed(entries) if entry.manifest.cache_id not in set(names)]
    roots = []
    for namespace in sorted(name for name in namespaces if mine(name)):
        key = root_key(cache.identity, namespace)
        root = _Block(key, 0, b"", 0)
        _add_resident(cache, root)
        for entry in entries:
            if entry.manifest.namespace == namespace and entry.manifest.identity == cache.identity:
                _add_saved(cache, root, entry)
        if root.children:
            roots.append(root)
    return roots, {name: place for place, name in enumerate(names)}


def _add_resident(cache: PrefixCache, root: _Block) -> None:
    node = cache.graph.roots.get(root.key)
    stack = [(node, root)] if node is not None else []
    while stack:
        parent, block = stack.pop()
        for child in list(parent.children.values()):
            mine = _Block(child.key, child.start, child.id_bytes, child.num_bytes, is_resident=True, pins=child.pins)
            state = child.terminal
            if state is not None:
                record = state.record
                mine.states[record.cache_id] = _State(
                    record.cache_id, record.namespace, record.length, record.round, record.is_unit, is_resident=True
                )
            block.children[child.id_bytes] = mine
            stack.append((child, mine))


def _add_saved(cache: PrefixCache, root: _Block, entry: Any) -> None:
    step = cache.layout.block_tokens * ID_BYTES
    block, one = root, entry.manifest
    for index, start in enumerate(range(0, len(one.id_bytes), step)):
        ids = one.id_bytes[start : start + step]
        child = block.children.get(ids)
        if child is None:
            num_bytes = cache.layout.rows_bytes(len(ids) // ID_BYTES)
            child = block.children[ids] = _Block(entry.keys[index], block.end, ids, num_bytes)
        child.is_on_ssd = True
        block = child
    known = block.states.setdefault(one.cache_id, _State(one.cache_id, one.namespace, one.length, one.round, False))
    known.is_on_ssd = True


def _runs(
    root: _Block, vocabulary: Vocabulary, uses: Mapping[str, Use], order: Mapping[str, int], budget: list[int], cut: list[int],
    *, shows_text: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """Blocks in a row that neither branch nor end a state nor change their tier, as one node each."""
    shown: list[dict[str, Any]] = []
    stack: list[tuple[_Block, list[dict[str, Any]]]] = [(child, shown) for child in reversed(list(root.children.values()))]
    while stack:
        first, into = stack.pop()
        if not budget[0]:
            cut[0] += 1
            continue
        budget[0] -= 1
        run = [first]
        while len(run[-1].children) == 1 and not run[-1].states:
            (only,) = run[-1].children.values()
            if _look(only) != _look(first):
                break
            run.append(only)
        last = run[-1]
        children: list[dict[str, Any]] = []
        into.append(_node(run, vocabulary, uses, order, children, shows_text=shows_text))
        stack += [(child, children) for child in reversed(list(last.children.values()))]
    return shown


def _look(block: _Block) -> tuple[str, int]:
    return _tier(block.is_resident, block.is_on_ssd), block.pins


def _node(
    run: list[_Block], vocabulary: Vocabulary, uses: Mapping[str, Use], order: Mapping[str, int],
    children: list[dict[str, Any]], *, shows_text: bool,
) -> dict[str, Any]:  # fmt: skip
    first, last = run[0], run[-1]
    states = sorted(last.states.values(), key=lambda state: order.get(state.cache_id, len(order)))
    return {
        "key": last.key.hex(),
        "tokens": [first.start, last.end],
        "num_blocks": len(run),
        "bytes": sum(block.num_bytes for block in run),
        "tier": _tier(first.is_resident, first.is_on_ssd),
        "pins": first.pins,
        "text": _decoded(vocabulary, first.id_bytes[: _SHOWN_TOKENS * ID_BYTES])[:_SHOWN] if shows_text else "",
        "tail": _decoded(vocabulary, last.id_bytes[-_SHOWN_TOKENS * ID_BYTES :])[-_SHOWN:] if shows_text else "",
        "state": _state(states[0], uses, order, sum(block.num_bytes for block in run)) if states else None,
        "children": children,
    }


def _state(state: _State, uses: Mapping[str, Use], order: Mapping[str, int], num_bytes: int) -> dict[str, Any]:
    use = uses.get(state.cache_id)
    return {
        "cache_id": state.cache_id,
        "length": state.length,
        "round": state.round,
        "is_unit": state.is_unit,
        "last_used_rank": order.get(state.cache_id, len(order)),
        "last_used_at_ms": use.at_ms if use is not None else None,
        "tier": _tier(state.is_resident, state.is_on_ssd),
        "request": use.request_id if use is not None else None,
        "bytes": num_bytes,
    }


def _tier(is_resident: bool, is_on_ssd: bool) -> str:
    return "both" if is_resident and is_on_ssd else "ssd" if is_on_ssd else "resident"


def _decoded(vocabulary: Vocabulary, id_bytes: bytes) -> str:
    return vocabulary.decode(ids_of(id_bytes).tolist())
