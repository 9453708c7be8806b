"""Random tiny models of `transformers`, saved as a Hugging Face folder and loaded by both sides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from equivalence.parity.parity import SEEDS, Theirs, shake
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.weights import open_checkpoint

LoadBoth = Callable[[Any], tuple[Theirs, Model]]


@pytest.fixture
def load_both(tmp_path: Path) -> LoadBoth:
    """Makes a model from a `transformers` config, shakes every parameter, saves it, and opens the folder with ours."""
    from transformers import AutoModelForCausalLM

    def load(config: Any, drafting: bool = False) -> tuple[Theirs, Model]:
        torch.manual_seed(SEEDS[config.model_type])
        theirs = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for name, tensor in [*theirs.named_parameters(), *theirs.named_buffers()]:
                shake(name, tensor, config)
        theirs.save_pretrained(tmp_path)
        checkpoint = open_checkpoint(tmp_path, torch.float32)
        return theirs, build_model(checkpoint, Numerics(torch.float32), drafting=drafting)

    return load
