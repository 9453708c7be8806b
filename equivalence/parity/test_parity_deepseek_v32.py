"""DeepSeek V3.2 computes what `transformers` computes, from the same folder, past the point where the indexer chooses."""

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
    "num_key_value_heads": 4,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "index_topk": 24,
    "index_head_dim": 64,
    "index_n_heads": 32,  # of few heads all may score 0, and equal scores have no order in `transformers`
    "moe_intermediate_size": 64,
    "n_routed_experts": 16,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 1024,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


@pytest.mark.parametrize(
    "changes",
    [{}, {"index_topk": 512}, {"rope_parameters": YARN}, {"n_group": 1, "topk_group": 1}],
    ids=["sparse", "everything-seen", "yarn", "one-group"],
)
def test_deepseek_v32_equals_transformers(load_both: LoadBoth, changes: dict[str, Any]) -> None:
    from transformers import DeepseekV32Config

    theirs, ours = load_both(DeepseekV32Config(**CONFIG | changes))

    assert_same_model(theirs, ours, num_prompt=100, num_decode=40)
