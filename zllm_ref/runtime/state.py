"""What a model remembers, declared as named tensors; everything else about state is generic over that declaration.

    growing   [layers, rows, *row_shape]   one row for every `tokens_per_row` tokens      linear K/V, latents, indexer keys
    fixed     [layers, *row_shape]         the same bytes at any length                   rings, compressor buffers, counts

A growing tensor is *cuttable*: its first rows are the state of the shorter sequence. A fixed tensor is not: it is right at
exactly one length. From the declaration follow fork, copy to blocks, restore, byte accounting and rollback, with no code
for any model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from zllm_ref.cache.block import StateLayout
from zllm_ref.runtime.numerics import KEY_TILE, round_up

Payload: TypeAlias = Mapping[str, Tensor]
"""Named pieces of state tensors, as blocks carry them."""

BLOCK_TOKENS = 128
"""Tokens in one block of the prefix graph."""


@dataclass(frozen=True)
class StateTensor:
    """One named tensor of a model's state, for all layers that have it."""

    name: str
    layers: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    grows: bool = True
    tokens_per_row: int = 1
    advisory: bool = False
    """Lost, it costs speed and never changes a token (drafter state): a snapshot may leave it out."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row over all layers (of the whole tensor, where it is fixed)."""
        count = self.layers
        for size in self.row_shape:
            count *= size
        return count * self.dtype.itemsize

    def rows_for(self, num_tokens: int) -> int:
        return num_tokens // self.tokens_per_row

    def allocate(self, capacity_tokens: int, device: torch.device) -> Tensor:
        rows = (max(1, self.rows_for(capacity_tokens)),) if self.grows else ()
        return torch.zeros((self.layers, *rows, *self.row_shape), dtype=self.dtype, device=device)


@dataclass(frozen=True)
class StateMark:
    """A point of a session to which it can return: its length, and a copy of what does not grow (None: everything grows)."""

    length: int
    fixed: Payload | None


class StateDeclaration:
    """All state tensors of a model, and what follows from them."""

    def __init__(self, tensors: Sequence[StateTensor]) -> None:
        self.tensors = tuple(tensors)
        self.growing = tuple(tensor for tensor in self.tensors if tensor.grows)
        self.fixed = tuple(tensor for tensor in self.tensors if not tensor.grows)
        for tensor in self.growing:
            if BLOCK_TOKENS % tensor.tokens_per_row:
                raise ValueError(
                    f"state tensor {tensor.name}: got {tensor.tokens_per_row} tokens a row, allowed a divisor of {BLOCK_TOKENS}"
                )

    @property
    def cuttable(self) -> bool:
        """True where any prefix of a state is itself a state."""
        return not self.fixed and all(tensor.tokens_per_row == 1 for tensor in self.growing)

    @property
    def bytes_per_token(self) -> int:
        """Bytes a token adds, rounded up where a row covers several tokens."""
        return sum(-(-tensor.row_bytes // tensor.tokens_per_row) for tensor in self.growing)

    @property
    def fixed_bytes(self) -> int:
        return sum(tensor.row_bytes for tensor in self.fixed)

    def session_bytes(self, num_tokens: int) -> int:
        """Bytes that a session for `num_tokens` really allocates: whole key tiles of them."""
        capacity_tokens = round_up(num_tokens, KEY_TILE)
        growing = sum(max(1, tensor.rows_for(capacity_tokens)) * tensor.row_bytes for tensor in self.growing)
        return growing + self.fixed_bytes

    def layout(self) -> StateLayout:
        """The same facts without tensors, for the cache room."""
        return StateLayout(
            block_tokens=BLOCK_TOKENS,
            bytes_per_token=self.bytes_per_token,
            fixed_bytes=self.fixed_bytes,
            cuttable=self.cuttable,
        )


class SessionState:
    """The tensors of one running sequence, in one buffer each, allocated for the whole length that was reserved.

        rows        0 ............ length ........ zeroed ............ capacity
                    |   written    |  zeroed tile  |   never touched   |

    Attention reads whole key tiles, so the rows from `length` to the end of its tile must hold finite numbers: every tile
    is zeroed when the first row of it is about to be written, whatever the memory held before.
    """

    def __init__(self, declaration: StateDeclaration, capacity_tokens: int, device: torch.device) -> None:
        self.declaration = declaration
        self.capacity = round_up(capacity_tokens, KEY_TILE)
        self.device = device
        self.length = 0
        self.tensors: dict[str, Tensor] = {t.name: t.allocate(self.capacity, device) for t in declaration.tensors}
        self.views: dict[str, tuple[int, list[tuple[Tensor, Tensor]]]] = {}
        """Views of the tensors that attention made for one key length; kept until the length outgrows its tile."""
        self.gate: Callable[[int], None] | None = None
        """While rows are being restored: called with a layer's number before its rows are read, returns when they are there."""
        self._zeroed = 0
        self._copied: dict[tuple[int, int], Payload] = {}

    @property
    def nbytes(self) -> int:
        """Allocated bytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def prepare(self, num_tokens: int) -> None:
        """Makes rows up to `num_tokens` writable and their tiles readable."""
        if num_tokens > self.capacity:
            raise ValueError(f"session state: got {num_tokens} tokens, allowed {self.capacity} (its capacity)")
        end = round_up(num_tokens, KEY_TILE)
        if end <= self._zeroed:
            return
        for tensor in self.declaration.growing:
            self.tensors[tensor.name][:, tensor.rows_for(self._zeroed) : tensor.rows_for(end)].zero_()
        self._zeroed = end

    def readable_rows(self, name: str) -> int:
        """How many rows of a growing tensor hold finite numbers: those written and the zeroed ones after them."""
        tensor = next(tensor for tensor in self.declaration.growing if tensor.name == name)
        return tensor.rows_for(self._zeroed)

    def begin_restore(self, length: int) -> None:
        """Makes an empty session ready to be filled with `length` tokens from elsewhere: only the rows behind are zeroed."""
        if self.length or length > self.capacity:
            raise ValueError(
                f"restore: got {length} tokens for {self.length} of {self.capacity}, allowed an empty session that holds them"
            )
        end = round_up(length, KEY_TILE)
        for tensor in self.declaration.growing:
            self.tensors[tensor.name][:, tensor.rows_for(length) : tensor.rows_for(end)].zero_()
        self._zeroed = max(self._zeroed, end)

    def copy_ahead(self, start: int, end: int) -> None:
        """Makes the copy now that `copy_rows` will be asked for. The rows must not change any more."""
        self._copied[start, end] = self._copy(start, end)

    def copy_rows(self, start: int, end: int) -> Payload:
        """A copy of the growing rows of tokens [start, end): the payload of a block."""
        copied = self._copied.pop((start, end), None)
        return copied if copied is not None else self._copy(start, end)

    def _copy(self, start: int, end: int) -> Payload:
        return {
            tensor.name: self.tensors[tensor.name][:, tensor.rows_for(start) : tensor.rows_for(end)].clone()
            for tensor in self.declaration.growing
        }

    def copy_fixed(self) -> Payload | None:
        """A copy of the fixed tensors as they are at this length; None where the model has none."""
        if not self.declaration.fixed:
            return None
        return {tensor.name: self.tensors[tensor.name].clone() for tensor in self.declaration.fixed}

    def load_rows(self, start: int, num_tokens: int, payload: Payload) -> None:
        """Writes the first `num_tokens` tokens of a block's payload at token `start`."""
        end = start + num_tokens
        self.prepare(end)
        for tensor in self.declaration.growing:
            first, last = tensor.rows_for(start), tensor.rows_for(end)
            self.tensors[tensor.name][:, first:last].copy_(payload[tensor.name][:, : last - first])

    def load_fixed(self, payload: Payload) -> None:
        for tensor in self.declaration.fixed:
            self.tensors[tensor.name].copy_(payload[tensor.name])

    def reset(self) -> None:
        """Back to the empty sequence; the memory stays."""
        self.length = 0
        self._zeroed = 0
        self.views.clear()
        self._copied.clear()
        for tensor in self.declaration.fixed:
            self.tensors[tensor.name].zero_()

    def fork(self, capacity_tokens: int | None = None) -> SessionState:
        """An independent state of the same length and content."""
        other = SessionState(self.declaration, capacity_tokens or self.capacity, self.device)
        other.prepare(self.length)
        for tensor in self.declaration.growing:
            rows = tensor.rows_for(self.length)
            other.tensors[tensor.name][:, :rows].copy_(self.tensors[tensor.name][:, :rows])
        for tensor in self.declaration.fixed:
            other.tensors[tensor.name].copy_(self.tensors[tensor.name])
        other.length = self.length
        return other

    def mark(self) -> StateMark:
        """Where the session stands now. Costs a copy of the fixed tensors: nothing, where everything grows."""
        return StateMark(self.length, self.copy_fixed())

    def return_to(self, mark: StateMark) -> None:
        """Forgets every token since the mark. Rows of growing tensors behind the length stay, and nobody reads them."""
        if not 0 <= mark.length <= self.length:
            raise ValueError(f"return to a mark: got length {mark.length}, allowed 0 to {self.length}")
        if mark.fixed is not None:
            self.load_fixed(mark.fixed)
        self._cut(mark.length)

    def rollback(self, length: int) -> None:
        """Forgets every token from `length` on. Only for cuttable states; others restore a copy of their fixed tensors."""
        if not self.declaration.cuttable and length != self.length:
            raise ValueError("rollback: this state is right at one length alone, return to a mark instead")
        if not 0 <= length <= self.length:
            raise ValueError(f"rollback: got {length}, allowed 0 to {self.length}")
        self._cut(length)

    def release(self) -> None:
        """Gives the memory back; the session is over."""
        self.tensors.clear()
        self.views.clear()
        self._copied.clear()

    def _cut(self, length: int) -> None:
        self.length = length
        for span in [span for span in self._copied if span[1] > length]:
            del self._copied[span]
