"""Proof that rows are independent, for the shapes that a loaded model really uses, on this machine, with these threads.

Every product, norm and gate that one step of the model runs is recorded, then run again: 256 rows at once, and the same rows
in groups of other sizes. Then the whole model: one prompt in one piece against chunks and single tokens, every logit. Each
comparison is also made with the invariance switched off, to show whether it could have failed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.numerics import KEY_TILE, Numerics, causal_mask
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step

NUM_ROWS = 256
_GROUPS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64, 100, 255)
_SEED = 20


@dataclass(frozen=True)
class Finding:
    """One comparison: how many outputs differ with invariance on (must be 0), and with it off (shows that it can be seen)."""

    name: str
    shape: str
    compared: int
    differing: int
    control_differing: int | None

    @property
    def holds(self) -> bool:
        return self.differing == 0


@dataclass(frozen=True)
class RecordingNumerics(Numerics):
    """Numerics that remember one example of every shape they were used with."""

    linears: dict[tuple[int, int], tuple[Tensor, Tensor | None]] = field(default_factory=dict)
    norms: dict[int, tuple[Tensor | None, float]] = field(default_factory=dict)
    gates: set[int] = field(default_factory=set)
    float32s: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    groups: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)

    def linear(self, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        self.linears.setdefault((weight.shape[1], weight.shape[0]), (weight, bias))
        return super().linear(rows, weight, bias)

    def rms_norm(self, rows: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
        self.norms.setdefault(rows.shape[-1], (weight, epsilon))
        return super().rms_norm(rows, weight, epsilon)

    def float32_linear(self, rows: Tensor, weight: Tensor) -> Tensor:
        self.float32s.setdefault((weight.shape[1], weight.shape[0]), weight)
        return super().float32_linear(rows, weight)

    def grouped_linear(self, rows: Tensor, weight: Tensor) -> Tensor:
        groups, outputs, width = weight.shape
        self.groups.setdefault((groups, width, outputs), weight)
        return super().grouped_linear(rows, weight)

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        self.gates.add(gate.shape[-1])
        return super().silu_gate(gate, up)


def prove(model: Model) -> Iterator[Finding]:
    """Yields one finding after another: the smallest pieces first, the whole model last. Needs inference mode."""
    on = model.numerics
    recorded = _record(model)
    off = replace(on, invariant=False)
    generator = torch.Generator().manual_seed(_SEED)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(on.dtype).to(model.device)

    for (width, outputs), (weight, bias) in recorded.linears.items():
        rows = draw(NUM_ROWS, width)
        yield _compare(
            "linear",
            f"K {width}, N {outputs}",
            lambda n, piece, w=weight, b=bias: n.linear(n.pad_rows(piece), w, b)[: piece.shape[0]],  # type: ignore[misc]
            rows,
            on,
            off,
        )
    for (width, outputs), weight in recorded.float32s.items():
        rows = draw(NUM_ROWS, width)
        shape = f"K {width}, N {outputs}"
        yield _compare("float32_linear", shape, lambda n, piece, w=weight: n.float32_linear(piece, w), rows, on, off)  # type: ignore[misc]
    for (groups, width, outputs), weight in recorded.groups.items():
        rows = draw(NUM_ROWS, groups, width)
        yield _compare(
            "grouped_linear",
            f"{groups} × K {width}, N {outputs}",
            lambda n, piece, w=weight: n.grouped_linear(n.pad_rows(piece), w)[: piece.shape[0]],  # type: ignore[misc]
            rows,
            on,
            off,
        )
    for width, (gain, epsilon) in recorded.norms.items():
        rows = draw(NUM_ROWS, width)
        yield _compare(
            "rms_norm",
            f"width {width}",
            lambda n, piece, g=gain, e=epsilon: n.rms_norm(n.pad_rows(piece), g, e)[: piece.shape[0]],  # type: ignore[misc]
            rows,
            on,
            off,
        )
    for width in sorted(recorded.gates):
        rows = draw(NUM_ROWS, 2 * width)
        yield _compare("silu_gate", f"width {width}", _gate, rows, on, off)
    yield from _attention_findings(model, draw, on, off)
    yield _whole_model(model)


def _record(model: Model) -> RecordingNumerics:
    """One step of the model under recording numerics."""
    before = model.numerics
    recording = RecordingNumerics(before.dtype, before.num_threads, before.invariant)
    model.numerics = recording
    try:
        state = SessionState(model.state, KEY_TILE, model.device)
        step = build_step([(state, [0, 1, 2])], recording, model.device)
        model.logits(model.forward(step)[:1])
    finally:
        model.numerics = before
    return recording


def _gate(numerics: Numerics, rows: Tensor) -> Tensor:
    gate, up = numerics.pad_rows(rows).chunk(2, -1)
    return numerics.silu_gate(gate, up)[: rows.shape[0]]


def _attention_findings(model: Model, draw: Callable[..., Tensor], on: Numerics, off: Numerics) -> Iterator[Finding]:
    """Attention of the model's head shape: rows around every length at which keys are cut, one by one and together."""
    attention = getattr(model, "attention", None)
    if attention is None:
        return
    kv_heads, group, dim, scale = attention.kv_heads, attention.group, attention.dim, attention.scale
    keys, values = draw(1, kv_heads, 4 * KEY_TILE, dim), draw(1, kv_heads, 4 * KEY_TILE, dim)
    rows = draw(NUM_ROWS, kv_heads * group * dim)

    def attend(numerics: Numerics, piece: Tensor, start: int) -> Tensor:
        count = piece.shape[0]
        length = numerics.key_length(start + count)
        queries = piece.view(count, kv_heads, group, dim).permute(1, 0, 2, 3).reshape(1, kv_heads, count * group, dim)
        missing = numerics.query_rows(count * group) - count * group
        positions = torch.arange(start, start + count, device=piece.device).repeat_interleave(group)
        mask = causal_mask(positions, length, numerics.dtype)
        queries = torch.nn.functional.pad(queries, (0, 0, 0, missing))
        mask = torch.nn.functional.pad(mask, (0, 0, 0, missing))
        result = numerics.attend(queries, keys[:, :, :length], values[:, :, :length], mask, scale)
        shaped = result[0, :, : count * group].reshape(kv_heads, count, group, dim)
        return shaped.permute(1, 0, 2, 3).reshape(count, -1)

    def differing(numerics: Numerics) -> tuple[int, int]:
        count = compared = 0
        for first in (0, 160, 320, KEY_TILE - NUM_ROWS // 2, 2 * KEY_TILE):
            whole = attend(numerics, rows, first)
            for size in _GROUPS:
                for start in range(0, NUM_ROWS - size + 1, max(size, 48)):
                    piece = attend(numerics, rows[start : start + size], first + start)
                    count += int((piece != whole[start : start + size]).sum())
                    compared += piece.numel()
        return count, compared

    count, compared = differing(on)
    yield Finding("attention", f"{kv_heads} × {group} heads of {dim}", compared, count, differing(off)[0])


def _compare(
    name: str, shape: str, run: Callable[[Numerics, Tensor], Tensor], rows: Tensor, on: Numerics, off: Numerics
) -> Finding:
    def differing(numerics: Numerics) -> tuple[int, int]:
        whole = run(numerics, rows)
        count = compared = 0
        for size in _GROUPS:
            for start in range(0, NUM_ROWS - size + 1, max(size, 16)):
                piece = run(numerics, rows[start : start + size])
                count += int((piece != whole[start : start + size]).sum())
                compared += piece.numel()
        return count, compared

    count, compared = differing(on)
    return Finding(name, shape, compared, count, differing(off)[0])


def _whole_model(model: Model) -> Finding:
    """Logits of every position of one prompt: in one piece, and in pieces of 1, 2, 3, 61 … rows."""
    length = min(KEY_TILE + NUM_ROWS // 2, model.context_length)
    generator = torch.Generator().manual_seed(_SEED)
    ids = torch.randint(0, model.vocab_size, (length,), generator=generator).tolist()
    first = max(0, length - NUM_ROWS)
    whole = _hidden_rows(model, ids, [length])[first:]
    pieces = [61, 1, 1, 1, 2, 3, 5, 64]
    while sum(pieces) < length:
        pieces.append(min((1, 130, 1, 7)[len(pieces) % 4], length - sum(pieces)))
    cut = _hidden_rows(model, ids, pieces)[first:]
    count = 0
    for start in range(0, whole.shape[0], 64):
        left, right = model.logits(whole[start : start + 64]), model.logits(cut[start : start + 64])
        count += int((left != right).sum())
    return Finding("whole model", f"{length} tokens", whole.shape[0] * model.vocab_size, count, None)


def _hidden_rows(model: Model, ids: list[int], pieces: list[int]) -> Tensor:
    state = SessionState(model.state, len(ids), model.device)
    rows = []
    for size in pieces:
        step = build_step([(state, ids[state.length : state.length + size])], model.numerics, model.device)
        rows.append(model.forward(step)[:size])
        commit_step(step)
    return torch.cat(rows)
