"""DeepSeek V4 computes what `transformers` computes, from the same folder, past every window and compressor border."""

from __future__ import annotations

from typing import Any

import pytest

from equivalence.parity.conftest import LoadBoth
from equivalence.parity.parity import assert_same_model

WINDOW, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
CONFIG = {
    "vocab_size": 192,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "layer_types": [WINDOW, SPARSE, HEAVY],
    "mlp_layer_types": ["hash_moe", "moe", "moe"],
    "compress_rates": {SPARSE: 4, HEAVY: 16},
    "sliding_window": 16,
    "num_attention_heads": 4,
    "head_dim": 64,
    "partial_rotary_factor": 0.5,
    "q_lora_rank": 64,
    "o_groups": 2,
    "o_lora_rank": 64,
    "index_n_heads": 32,  # of few heads all may score 0, and equal scores have no order in `transformers`
    "index_head_dim": 64,
    "index_topk": 8,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 1024,
}
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32,
    "beta_slow": 1,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_types": [WINDOW, WINDOW, WINDOW]},
        {"layer_types": [SPARSE, SPARSE, HEAVY], "rope_parameters": YARN},
        {"compress_rates": {SPARSE: 4, HEAVY: 128}, "sliding_window": 128, "index_topk": 512},
        {"swiglu_limit": 0.5, "o_groups": 4},
    ],
    ids=["every-kind", "windows", "yarn", "published-rates", "clipped"],
)
def test_deepseek_v4_equals_transformers(load_both: LoadBoth, changes: dict[str, Any]) -> None:
    from transformers import DeepseekV4Config

    theirs, ours = load_both(DeepseekV4Config(**CONFIG | changes))

    assert_same_model(theirs, ours, num_prompt=101, num_decode=70)
