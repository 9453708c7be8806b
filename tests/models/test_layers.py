"""The layers that families share, against the plain way: routers, experts, compressor, window attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from equivalence.bits import assert_bits_equal
from zllm_ref.runtime import latent_attention
from zllm_ref.runtime.compressor import Compressor, CompressorShape
from zllm_ref.runtime.experts import Experts
from zllm_ref.runtime.feed_forward import FeedForward
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.rope import build_pair_rope, rotate_pairs
from zllm_ref.runtime.router import Router, Routing, SoftplusRouter
from zllm_ref.runtime.state import SessionState, StateDeclaration, StateTensor
from zllm_ref.runtime.step import LaneSlice, build_step
from zllm_ref.runtime.weights import seeded_checkpoint
from zllm_ref.runtime.window_attention import WindowAttention

FLOAT32 = Numerics(torch.float32)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def feed_forward(seed: int, hidden: int = 64, intermediate: int = 64) -> FeedForward:
    return FeedForward(random(2 * intermediate, hidden, seed=seed) / 8, random(hidden, intermediate, seed=seed + 1) / 8)


def test_experts_add_in_the_order_of_their_numbers() -> None:
    experts = Experts(tuple(feed_forward(10 * number) for number in range(5)), feed_forward(99))
    rows = random(16, 64)
    chosen = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(row))[:3].sort().values for row in range(13)])
    routing = Routing(chosen, random(13, 3, seed=3).abs())

    together = experts.apply(rows, routing, FLOAT32)

    for row in range(13):
        total = torch.zeros(64)
        for place, number in enumerate(chosen[row].tolist()):
            padded = FLOAT32.pad_rows(rows[row : row + 1])
            total = total + experts.routed[number].apply(padded, FLOAT32)[0] * routing.weights[row, place]
        assert_bits_equal(f"row {row}", together[row], total + experts.shared.apply(rows, FLOAT32)[row])


def test_equal_experts_are_chosen_by_their_number() -> None:
    router = Router(torch.zeros(8, 64), torch.zeros(8), 3, 4, 2, True, 1.0)

    routing = router.route(random(5, 64), FLOAT32)

    assert routing.experts.tolist() == [[0, 1, 2]] * 5
    assert torch.allclose(routing.weights, torch.full((5, 3), 1 / 3))


def test_the_bias_decides_the_choice_and_not_the_weight() -> None:
    bias = torch.tensor([0.0, 0.0, 5.0, 4.0])
    router = Router(torch.zeros(4, 64), bias, 2, 1, 1, False, 2.0)

    routing = router.route(random(3, 64), FLOAT32)

    assert routing.experts.tolist() == [[2, 3]] * 3
    assert torch.allclose(routing.weights, torch.full((3, 2), 0.5 * 2.0))


def test_a_hash_router_looks_its_experts_up() -> None:
    table = torch.tensor([[3, 1], [0, 2]])
    router = SoftplusRouter(random(4, 64), 2, 1.5, table=table)
    rows = random(2, 64, seed=1)

    routing = router.route(rows, torch.tensor([1, 0]), FLOAT32)

    assert routing.experts.tolist() == [[0, 2], [1, 3]]
    scores = F.softplus(rows @ router.weight.T).sqrt()
    expected = torch.stack([scores[0, [0, 2]], scores[1, [1, 3]]])
    assert torch.allclose(routing.weights, expected / expected.sum(-1, keepdim=True) * 1.5, atol=1e-6)


@pytest.mark.parametrize("series", [1, 2], ids=["heavy", "sparse"])
@pytest.mark.parametrize("pieces", [[37], [1] * 37, [3, 1, 4, 1, 5, 9, 2, 6, 5, 1], [4, 4, 4, 4, 4, 4, 4, 4, 4, 1]], ids=len)
def test_a_compressor_pools_whole_windows_whenever_they_come(series: int, pieces: list[int]) -> None:
    shape = CompressorShape("rows", "pending", 4, series, 64, 32, 1e-6)
    compressor = Compressor(shape, random(4, series * 64, seed=1), random(64, seed=2).abs() + 0.5)
    rope = build_pair_rope(32, 10000.0, 64, torch.float32, torch.device("cpu"))
    new = random(37, 2, series * 64)
    pending, rows = torch.zeros(shape.pending_shape), torch.zeros(9, 64)

    start = 0
    for count in pieces:
        compressor.extend(pending, rows, start, new[start : start + count], rope, FLOAT32)
        start += count

    for window in range(9):
        own = new[4 * window : 4 * window + 4]
        values, gates = own[:, 0, -64:], own[:, 1, -64:] + compressor.bias[:, -64:]
        if series == 2 and window:
            before = new[4 * window - 4 : 4 * window]
            values = torch.cat((before[:, 0, :64], values))
            gates = torch.cat((before[:, 1, :64] + compressor.bias[:, :64], gates))
        pooled = F.rms_norm((gates.softmax(0) * values).sum(0), (64,), compressor.norm, 1e-6)
        rotated = rotate_pairs(pooled[None, None, 32:], *rope.at(torch.tensor([4 * window])))[0, 0]
        assert torch.allclose(rows[window], torch.cat((pooled[:32], rotated)), atol=1e-5), window
    kept = torch.arange(37 - shape.slots, 37)
    assert_bits_equal("pending", pending[kept % shape.slots], new[kept])


def test_turning_a_rotation_back_gives_what_was_there() -> None:
    rope = build_pair_rope(32, 10000.0, 64, torch.float32, torch.device("cpu"))
    heads = random(8, 2, 32)
    cos, sin = rope.at(torch.arange(8))

    assert torch.allclose(rotate_pairs(rotate_pairs(heads, cos, sin), cos, -sin), heads, atol=1e-6)


def test_latent_attention_in_pieces_is_that_of_all_rows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(seeded_checkpoint("tiny-deepseek-v32", torch.float32), FLOAT32)

    def hidden_rows() -> Tensor:
        step = build_step([(SessionState(model.state, 90, model.device), list(range(90)))], FLOAT32, model.device)
        return model.forward(step)[:90]

    with torch.inference_mode():
        together = hidden_rows()
        monkeypatch.setattr(latent_attention, "MOST_QUERIES", 28)
        pieces = hidden_rows()

    assert_bits_equal("hidden", pieces, together)


def window_rows(pieces: list[int], heads: int = 1, window: int = 16) -> tuple[Tensor, Tensor]:
    """Attention of 70 rows that come in `pieces`, with sinks and no history → [70, heads, 64], and the ring after them."""
    declaration = StateDeclaration([StateTensor("window", 1, (window, 64), torch.float32, grows=False)])
    state = SessionState(declaration, 70, torch.device("cpu"))
    attention = WindowAttention("window", heads, 64, window, FLOAT32)
    queries, rows, sinks = random(70, heads, 64), random(70, 64, seed=1), random(heads, seed=2)
    outputs, start = [], 0
    for count in pieces:
        lane = LaneSlice(state, start, count, 0)
        outputs.append(attention.attend(0, lane, queries[start : start + count], rows[start : start + count], sinks, None))
        start += count
    return torch.cat(outputs), state.tensors["window"][0]


def test_a_window_is_softmax_attention_over_the_last_rows_and_a_sink() -> None:
    got, ring = window_rows([70])

    queries, rows, sink = random(70, 1, 64)[:, 0], random(70, 64, seed=1), random(1, seed=2)
    age = torch.arange(70)[:, None] - torch.arange(70)[None, :]
    scores = (queries @ rows.T / 8).masked_fill((age < 0) | (age >= 16), float("-inf"))
    weights = torch.cat((scores, sink.expand(70, 1)), -1).softmax(-1)[:, :-1]
    assert torch.allclose(got[:, 0], weights @ rows, atol=1e-5)
    assert_bits_equal("ring", ring[torch.arange(54, 70) % 16], rows[54:])


@pytest.mark.parametrize("pieces", [[1] * 70, [15, 1, 1, 15, 38], [16, 16, 16, 22], [17, 53]], ids=len)
def test_a_window_of_a_single_head_does_not_feel_the_pieces(pieces: list[int]) -> None:
    for got, whole in zip(window_rows(pieces), window_rows([70]), strict=True):
        assert_bits_equal("window", got, whole)
