"""What a context costs in state, architecture by architecture, from what each declares."""

from __future__ import annotations

from typing import Any

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.published import PUBLISHED_MODELS
from zllm_ref.runtime.state import StateDeclaration


def kv_figures(num_tokens: int, loaded_name: str | None, loaded: Model | None) -> dict[str, Any]:
    """The served model first, then published ones in bfloat16."""
    models = []
    if loaded is not None and loaded_name is not None:
        note = f"as it runs here, {str(loaded.numerics.dtype).removeprefix('torch.')}"
        models.append(_row(loaded_name, loaded.architecture, loaded.state, num_tokens, note, is_loaded=True))
    for one in PUBLISHED_MODELS:
        models.append(_row(one.name, one.architecture, one.state, num_tokens, one.formula_text, is_loaded=False))
    return {"tokens": num_tokens, "models": models}


def _row(name: str, architecture: str, state: StateDeclaration, num_tokens: int, note: str, *, is_loaded: bool) -> dict[str, Any]:
    return {
        "name": name,
        "architecture": architecture,
        "is_loaded": is_loaded,
        "bytes_per_token": state.bytes_per_token,
        "fixed_bytes": state.fixed_bytes,
        "total_bytes": num_tokens * state.bytes_per_token + state.fixed_bytes,
        "layers": max((tensor.layers for tensor in state.tensors), default=None),
        "parts": [
            {
                "name": tensor.name,
                "bytes_per_token": tensor.row_bytes // tensor.tokens_per_row if tensor.grows else 0,
                "fixed_bytes": 0 if tensor.grows else tensor.row_bytes,
            }
            for tensor in state.tensors
        ],
        "note": note,
    }
