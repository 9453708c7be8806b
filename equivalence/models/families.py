"""The model families, tiny, with names for test ids, and the comparison of two runs over all declared state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.weights import seeded_checkpoint

from ..bits import assert_bits_equal
from ..subjects import DTYPES, Run, logits, numerics_of

FAMILIES: Mapping[str, str] = {
    "llama": "tiny-llama",
    "qwen3": "tiny-qwen3",
    "glm4_moe": "tiny-glm4-moe",
    "deepseek_v32": "tiny-deepseek-v32",
    "deepseek_v4": "tiny-deepseek-v4",
}

WIDE: Mapping[str, Mapping[str, Any]] = {
    "llama": {"intermediate_size": 4608},
    "qwen3": {"intermediate_size": 4608},
    "glm4_moe": {"intermediate_size": 4608},
    "deepseek_v32": {"intermediate_size": 4608},
    "deepseek_v4": {
        "num_hidden_layers": 2,
        "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
        "mlp_layer_types": ["moe", "moe"],
        "moe_intermediate_size": 4608,
        "n_routed_experts": 2,
        "num_experts_per_tok": 1,
    },
}
"""bfloat16 hides most wrong reductions below K = 1,000: these sum over 4,608."""

BORDERS = (3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513)
"""Before, on and after every border: compressors of 4 and 16, window of 32, 64 chosen keys, blocks of 128, key tiles of 512."""

SUBJECTS = [pytest.param((family, dtype), id=f"{family}-{dtype}") for family in FAMILIES for dtype in DTYPES]
CONTROLS = [*(pytest.param((family, "float32", False), id=f"{family}-float32") for family in FAMILIES)]
CONTROLS += [*(pytest.param((family, "bfloat16", True), id=f"{family}-wide-bfloat16") for family in FAMILIES)]


@cache
def family_model(family: str, dtype: str, invariant: bool = True, wide: bool = False, device: str = "cpu") -> Model:
    """A family's tiny model: the same weights for every way of asking."""
    torch.set_num_threads(1)
    checkpoint = seeded_checkpoint(FAMILIES[family], DTYPES[dtype], overrides=WIDE[family] if wide else None)
    return build_model(checkpoint, numerics_of(DTYPES[dtype], invariant), device)


def state_tensors(state: SessionState) -> dict[str, Tensor]:
    """What a state holds for its tokens: the rows that they wrote, and all of every fixed tensor."""
    return {
        tensor.name: state.tensors[tensor.name][:, : tensor.rows_for(state.length)]
        if tensor.grows
        else state.tensors[tensor.name]
        for tensor in state.declaration.tensors
    }


def assert_same_state(got: SessionState, expected: SessionState) -> None:
    assert got.length == expected.length
    theirs = state_tensors(expected)
    for name, tensor in state_tensors(got).items():
        assert_bits_equal(name, tensor, theirs[name])


def assert_same_run(model: Model, got: Run, expected: Run) -> None:
    """All logits of `got` against the last rows of `expected`, and the states after them."""
    rows = got.hidden.shape[0]
    assert_bits_equal("logits", logits(model, got.hidden), logits(model, expected.hidden[-rows:]))
    assert_same_state(got.state, expected.state)
