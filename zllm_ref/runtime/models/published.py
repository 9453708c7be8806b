"""Published models by their sizes: what a saved state of each costs, from its config alone, and from the formula by hand.

The configs are those parts of the published config.json files that decide the state. The formula is written down factor by
factor, layers × values × bytes (÷ tokens a row), so that a declaration that drifts from it is seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from zllm_ref.runtime.models.registry import MODEL_FAMILIES
from zllm_ref.runtime.state import StateDeclaration

BFLOAT16_BYTES = 2


@dataclass(frozen=True)
class PublishedModel:
    """`formula`: bytes per token in bfloat16 as a sum of products (layers, values a row, bytes a value, tokens a row)."""

    name: str
    config: Mapping[str, Any]
    formula: tuple[tuple[int, int, int, int], ...]
    draft_formula: tuple[tuple[int, int, int, int], ...] = ()
    """Of what its layers for further tokens add: bytes per token, or of a window, which does not grow (0 tokens a row)."""

    @property
    def architecture(self) -> str:
        return str(self.config["model_type"])

    @property
    def state(self) -> StateDeclaration:
        return MODEL_FAMILIES[self.architecture].declare_state(self.config, torch.bfloat16)

    @property
    def draft_state(self) -> StateDeclaration:
        """The tensors that drafting adds."""
        both = MODEL_FAMILIES[self.architecture].declare_state(self.config, torch.bfloat16, drafting=True)
        return StateDeclaration(both.tensors[len(self.state.tensors) :])

    @property
    def formula_bytes(self) -> int:
        return _bytes(self.formula)

    @property
    def formula_text(self) -> str:
        return " + ".join("×".join(map(str, term[:3])) + (f"÷{term[3]}" if term[3] > 1 else "") for term in self.formula)

    @property
    def draft_formula_bytes(self) -> tuple[int, int]:
        """(a token, fixed)."""
        return (
            _bytes(tuple(term for term in self.draft_formula if term[3])),
            sum(math.prod(term[:3]) for term in self.draft_formula if not term[3]),
        )

    @property
    def holds(self) -> bool:
        """Both declarations have the bytes of their formulas."""
        draft = (self.draft_state.bytes_per_token, self.draft_state.fixed_bytes)
        return self.state.bytes_per_token == self.formula_bytes and draft == self.draft_formula_bytes


def _bytes(formula: tuple[tuple[int, int, int, int], ...]) -> int:
    return sum(-(-math.prod(term[:3]) // term[3]) for term in formula)


def _keys_and_values(layers: int, kv_heads: int, head_dim: int) -> tuple[tuple[int, int, int, int], ...]:
    return ((layers, 2 * kv_heads * head_dim, BFLOAT16_BYTES, 1),)


def _llama(layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 8192,
    }


PUBLISHED_MODELS: tuple[PublishedModel, ...] = (
    PublishedModel("SmolLM2-135M", _llama(30, 576, 9, 3, 1536, 49152), _keys_and_values(30, 3, 64)),
    PublishedModel("SmolLM2-360M", _llama(32, 960, 15, 5, 2560, 49152), _keys_and_values(32, 5, 64)),
    PublishedModel("SmolLM2-1.7B", _llama(24, 2048, 32, 32, 8192, 49152), _keys_and_values(24, 32, 64)),
    PublishedModel("Llama-3.2-1B", _llama(16, 2048, 32, 8, 8192, 128256), _keys_and_values(16, 8, 64)),
    PublishedModel(
        "Qwen3-0.6B",
        {
            "model_type": "qwen3",
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40960,
        },
        _keys_and_values(28, 8, 128),
    ),
    PublishedModel(
        "GLM-4.5-Air",
        {
            "model_type": "glm4_moe",
            "vocab_size": 151552,
            "hidden_size": 4096,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "n_routed_experts": 128,
            "max_position_embeddings": 131072,
            "num_nextn_predict_layers": 1,
        },
        _keys_and_values(46, 8, 128),
        draft_formula=_keys_and_values(1, 8, 128),
    ),
    PublishedModel(
        "DeepSeek-V3.2",
        {
            "model_type": "deepseek_v32",
            "vocab_size": 129280,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "index_topk": 2048,
            "index_head_dim": 128,
            "index_n_heads": 64,
            "n_routed_experts": 256,
            "num_nextn_predict_layers": 1,
        },
        ((61, 512 + 64, BFLOAT16_BYTES, 1), (61, 128, BFLOAT16_BYTES, 1)),
        draft_formula=((1, 512 + 64, BFLOAT16_BYTES, 1), (1, 128, BFLOAT16_BYTES, 1)),
    ),
    PublishedModel(
        "DeepSeek-V4-Flash",
        {
            "model_type": "deepseek_v4",
            "vocab_size": 129280,
            "hidden_size": 4096,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 43,
            "num_attention_heads": 64,
            "head_dim": 512,
            "q_lora_rank": 1024,
            "o_groups": 8,
            "o_lora_rank": 1024,
            "index_n_heads": 64,
            "index_head_dim": 128,
            "index_topk": 512,
            "sliding_window": 128,
            "n_routed_experts": 256,
            "compress_ratios": [0, 0, *(4 if layer % 2 == 0 else 128 for layer in range(2, 43))],
            "num_nextn_predict_layers": 1,
        },
        ((21, 512, BFLOAT16_BYTES, 4), (21, 128, BFLOAT16_BYTES, 4), (20, 512, BFLOAT16_BYTES, 128)),
        draft_formula=((1, 128 * 512, BFLOAT16_BYTES, 0),),
    ),
)
