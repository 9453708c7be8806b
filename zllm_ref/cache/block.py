"""What a saved state looks like to the cache: sizes, opaque payloads, and the rows that a hit hands out.

    session buffer   |0 ........ 127|128 ....... 255|256 . 300|          rows by absolute position
    blocks           [   payload   ][   payload    ][ partial]  + fixed  copied out at commit, copied in at a hit

A *growing* state tensor has one row a token (K/V, latents, indexer keys). A *fixed* one has the same size at every length
(rings, open compressor windows, recurrent states): it belongs to exactly one length and cannot be cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int32]
"""Token ids of one sequence, shape [tokens], int32."""

Tier = Literal["resident", "ssd"]


@dataclass(frozen=True)
class StateLayout:
    """How large one model's state is, and whether a saved one may be cut.

    `cuttable`: every row depends on the tokens before it alone and no fixed tensor is needed to go on, so a saved state may be
    reused up to any token. Otherwise it is reusable only at exactly the length at which it was saved.
    """

    block_tokens: int
    bytes_per_token: int
    fixed_bytes: int
    cuttable: bool

    def __post_init__(self) -> None:
        if self.block_tokens < 1 or self.bytes_per_token < 0 or self.fixed_bytes < 0:
            raise ValueError(f"state layout: got {self}, allowed block_tokens >= 1 and sizes >= 0")

    def rows_bytes(self, num_rows: int) -> int:
        """Bytes of `num_rows` rows of all growing state tensors together."""
        return num_rows * self.bytes_per_token


class StateSource(Protocol):
    """A finished session as the cache sees it: something from which rows can be copied."""

    def copy_rows(self, start: int, end: int) -> object:
        """A new payload with the rows [start, end) of every growing state tensor; later steps must not change it."""

    def copy_fixed(self) -> object | None:
        """A new payload with the fixed-size tensors at the session's present length; None: the model has none."""


@dataclass(frozen=True)
class BlockUse:
    """The first `num_rows` rows of `payload` belong at positions [start, start + num_rows) of the session buffer."""

    payload: object
    start: int
    num_rows: int


@dataclass(frozen=True)
class Hit:
    """A saved state whose tokens are the beginning of the prompt.

    `length` tokens need not be computed, always fewer than the prompt has: the last token is computed anew, because the
    answer needs its logits. `cache_id` names a terminal that holds these rows (None: its name was given up while the rows
    were in use); `fixed` is given only when `length` is exactly that terminal's own length. Payloads stay valid while the
    admission that holds the hit is not released.
    """

    length: int
    blocks: tuple[BlockUse, ...]
    fixed: object | None
    cache_id: str | None
    tier: Tier = "resident"


@dataclass(frozen=True)
class Terminal:
    """The saved end state of a request: its name, where it belongs, and what saving it cost.

    `round` counts the finished requests before it on the same token chain; `written_bytes` are those that this commit copied, the
    rest was in the graph already.
    """

    cache_id: str
    namespace: str
    length: int
    round: int
    written_bytes: int
    is_unit: bool = False
    """Saved on the way through a prompt; it counts for the round whose prompt that was."""


def as_token_ids(ids: object) -> TokenIds:
    """`ids` as a contiguous int32 vector; raises ValueError for another shape or for values outside int32."""
    array = np.asarray(ids)
    if array.ndim != 1:
        raise ValueError(f"token ids: got shape {array.shape}, allowed one dimension")
    if array.dtype != np.int32:
        if array.size and array.dtype.kind not in "iu":
            raise ValueError(f"token ids: got dtype {array.dtype}, allowed int32")
        if array.size and (int(array.min()) < -(2**31) or int(array.max()) >= 2**31):
            raise ValueError("token ids: got a value outside int32, allowed int32")
        array = array.astype(np.int32)
    return np.ascontiguousarray(array)
