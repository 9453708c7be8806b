"""The earlier state that shares most with a prompt: of the recorded requests, and of what the cache holds beyond them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zllm_ref.cache.prefix_graph import id_bytes_of, ids_of, num_common_tokens
from zllm_ref.inspector.record import Record

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class SavedState:
    """A state that the cache holds. `identity` says of which model, weights and dialect it is."""

    cache_id: str
    namespace: str
    identity: str
    id_bytes: bytes


@dataclass(frozen=True)
class Nearest:
    """`length` tokens, the first `fork` of which the prompt has too. Either `record` or `state`."""

    ids: Ids
    fork: int
    record: Record | None = None
    state: SavedState | None = None

    @property
    def length(self) -> int:
        return len(self.ids)


def state_ids(record: Record) -> Ids:
    """What the end state of a request holds: the tokens of its last step have no rows yet."""
    # a copy made in one go: an array that lends its memory out cannot take the next token, and the runtime's thread has it
    output = np.frombuffer(record.ids.tobytes(), dtype=np.int32)
    return np.concatenate([record.prompt_ids, output[: max(0, len(output) - record.num_pending)]])


def nearest_record(record: Record, earlier: Iterable[Record], accepts: Callable[[Record], bool]) -> Nearest | None:
    """Among earlier requests that `accepts` lets in; of two that share as much the later one."""
    prompt = id_bytes_of(record.prompt_ids)
    best: Nearest | None = None
    for other in earlier:
        if other.number >= record.number or other.request is None or not accepts(other):
            continue
        ids = state_ids(other)
        fork = num_common_tokens(id_bytes_of(ids), prompt)
        if fork and (best is None or fork >= best.fork):
            best = Nearest(ids, fork, other)
    return best


def nearest_state(prompt_ids: Ids, states: Iterable[SavedState], accepts: Callable[[SavedState], bool]) -> Nearest | None:
    """Among saved states that `accepts` lets in."""
    prompt = id_bytes_of(prompt_ids)
    best: Nearest | None = None
    for state in states:
        if not accepts(state):
            continue
        fork = num_common_tokens(state.id_bytes, prompt)
        if fork and (best is None or fork > best.fork):
            best = Nearest(ids_of(state.id_bytes), fork, state=state)
    return best
