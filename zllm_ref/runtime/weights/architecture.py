"""What each architecture declares about its weights: the names and shapes of its parameters, and what it cannot compute.

One row per architecture. A loader checks a file against its row before anything is made; the seeded models are drawn from
the same rows. The names are those of Hugging Face, so that a parity test compares like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zllm_ref.runtime.weights.checkpoint import CheckpointError, Config, Shapes
from zllm_ref.runtime.weights.declared import deepseek_v4, deepseek_v32, glm4_moe, qwen3
from zllm_ref.runtime.weights.declared.dense import dense_shapes, normalise_dense

_ROUTER = (".gate.weight", ".gate.e_score_correction_bias", ".indexer.weights_proj.weight")
_V4_EXACT = (
    *(".gate.weight", ".gate.bias", ".gate.tid2eid", ".weights_proj.weight", ".attn_sink", ".ape", "norm.weight"),
    *("_fn", "_base", "_scale"),
)


@dataclass(frozen=True)
class Architecture:
    """One row: how to read a config and which parameters follow from it."""

    name: str
    normalise: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    """`(where, config.json as found) → config with every default written out`. Raises on what the model cannot compute."""
    parameter_shapes: Callable[[Config], Shapes]
    draft_shapes: Callable[[Config], Shapes] = lambda config: {}
    """Parameters that a file may have: all of them or none. The layers that predict further tokens."""
    exact: tuple[str, ...] = ()
    """Endings of names whose tensors stay float32, or whole numbers, whatever dtype the model runs in."""
    rename: Callable[[str], str] = lambda name: name
    """The declared name of a tensor in a file."""

    def is_exact(self, name: str) -> bool:
        return name.endswith(self.exact)


def find_architecture(where: str, name: str) -> Architecture:
    """The row of `name`. Raises `CheckpointError` that lists the rows."""
    if name not in ARCHITECTURES:
        raise CheckpointError(where, f"architecture {name!r}", ", ".join(sorted(ARCHITECTURES)))
    return ARCHITECTURES[name]


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("llama", normalise_dense, dense_shapes),
    "qwen3": Architecture("qwen3", qwen3.normalise, qwen3.parameter_shapes),
    "glm4_moe": Architecture("glm4_moe", glm4_moe.normalise, glm4_moe.parameter_shapes, glm4_moe.draft_shapes, exact=_ROUTER),
    "deepseek_v32": Architecture(
        "deepseek_v32", deepseek_v32.normalise, deepseek_v32.parameter_shapes, deepseek_v32.draft_shapes, exact=_ROUTER
    ),
    "deepseek_v4": Architecture(
        "deepseek_v4",
        deepseek_v4.normalise,
        deepseek_v4.parameter_shapes,
        deepseek_v4.draft_shapes,
        exact=_V4_EXACT,
        rename=deepseek_v4.rename,
    ),
}
