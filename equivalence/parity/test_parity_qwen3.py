"""Qwen3 computes what `transformers` computes, from the same folder."""

from __future__ import annotations

from typing import Any

import pytest

from equivalence.parity.conftest import LoadBoth
from equivalence.parity.parity import assert_same_model


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True, "num_key_value_heads": 4}], ids=["grouped", "tied"])
def test_qwen3_equals_transformers(load_both: LoadBoth, changes: dict[str, Any]) -> None:
    from transformers import Qwen3Config

    config = Qwen3Config(
        **{
            "vocab_size": 192,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "max_position_embeddings": 1024,
            "tie_word_embeddings": False,
        }
        | changes
    )
    theirs, ours = load_both(config)

    assert_same_model(theirs, ours, num_prompt=100, num_decode=40)
