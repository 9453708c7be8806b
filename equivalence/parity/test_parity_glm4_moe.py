"""GLM-4.5 computes what `transformers` computes, from the same folder."""

from __future__ import annotations

from typing import Any

import pytest

from equivalence.parity.conftest import LoadBoth
from equivalence.parity.parity import assert_same_model

CONFIG = {
    "vocab_size": 192,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "use_qk_norm": True,
    "attention_bias": True,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_qk_norm": False, "attention_bias": False, "first_k_dense_replace": 2},
        {"n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "routed_scaling_factor": 2.5},
        {"norm_topk_prob": False},
    ],
    ids=["norms-and-biases", "plain", "groups", "weights-as-they-are"],
)
def test_glm4_moe_equals_transformers(load_both: LoadBoth, changes: dict[str, Any]) -> None:
    from transformers import Glm4MoeConfig

    theirs, ours = load_both(Glm4MoeConfig(**CONFIG | changes))

    assert_same_model(theirs, ours, num_prompt=100, num_decode=40)
