"""`models`: the architectures, what a saved state of each costs, and the names that `--model` takes.

Exit 0: every declared state has the size that the formula gives. 1: one has not.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from zllm_ref.runtime.state import StateDeclaration


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("models", help="architectures, the size of their saved states, loadable names")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from zllm_ref.runtime.models.published import PUBLISHED_MODELS

    console = Console()
    console.print(_families())
    console.print(_published())
    console.print(_drafters())
    console.print(_names())
    wrong = [model.name for model in PUBLISHED_MODELS if not model.holds]
    if wrong:
        console.print(f"[bold red]not what the formula gives[/]: {', '.join(wrong)}")
    return 1 if wrong else 0


def _families() -> Table:
    """Each architecture's state tensors, as its tiny model declares them."""
    import torch
    from rich.table import Table

    from zllm_ref.runtime.models.registry import MODEL_FAMILIES
    from zllm_ref.runtime.weights import SEEDED_MODELS, seeded_checkpoint

    table = Table(title="architectures")
    for column in ("architecture", "state tensor", "kind", "reuse of a saved state"):
        table.add_column(column)
    examples = {seeded_checkpoint(name, torch.float32).architecture: name for name in SEEDED_MODELS}
    for architecture, family in MODEL_FAMILIES.items():
        state = family.declare_state(seeded_checkpoint(examples[architecture], torch.float32).config, torch.bfloat16)
        reuse = "up to any token" if state.cuttable else "whole, at the length at which it was saved"
        for index, tensor in enumerate(state.tensors):
            kind = "fixed" if not tensor.grows else "grows by a row each token"
            if tensor.grows and tensor.tokens_per_row > 1:
                kind = f"grows by a row for {tensor.tokens_per_row} tokens (in the tiny model)"
            table.add_row(architecture if not index else "", tensor.name, kind, reuse if not index else "")
    return table


def _published() -> Table:
    """Published models by their configs: bytes declared, and bytes by the formula."""
    from rich.table import Table

    from zllm_ref.runtime.models.published import PUBLISHED_MODELS

    table = Table(title="saved states of published models, bfloat16")
    table.add_column("model")
    table.add_column("architecture")
    for column in ("bytes per token", "by formula", "fixed bytes", "100,000 tokens", "own drafts add", "by formula"):
        table.add_column(column, justify="right")
    table.add_column("formula: layers × values × bytes ÷ tokens a row")
    for model in PUBLISHED_MODELS:
        state = model.state
        equal = state.bytes_per_token == model.formula_bytes
        table.add_row(
            model.name,
            model.architecture,
            f"{state.bytes_per_token:,}",
            f"{model.formula_bytes:,}" if equal else f"[bold red]{model.formula_bytes:,}[/]",
            f"{state.fixed_bytes:,}",
            _size(state, 100_000),
            _per_token_and_fixed(model.draft_state.bytes_per_token, model.draft_state.fixed_bytes),
            _per_token_and_fixed(*model.draft_formula_bytes),
            model.formula_text,
        )
    return table


def _per_token_and_fixed(per_token: int, fixed: int) -> str:
    """Of state that drafting adds: it is advisory, and a snapshot holds it only where drafts are on."""
    return f"{fixed:,} fixed" if fixed else f"{per_token:,}" if per_token else ""


def _drafters() -> Table:
    """Block drafters that come with this package: what their cache adds, and what their file weighs."""
    import torch
    from rich.table import Table

    from zllm_ref.runtime.draft.dspark.weights import PACKAGED, read_weights

    table = Table(title="block drafters (--draft dspark), bfloat16")
    for column in ("weights", "for the model with digest", "bytes per token", "by formula", "formula", "file"):
        table.add_column(column)
    for path in sorted(PACKAGED.glob("*.safetensors")):
        weights = read_weights(path)
        shape = weights.shape
        row = shape.cache(torch.bfloat16).row_bytes
        formula = shape.layers * 2 * shape.kv_heads * shape.head_dim * 2
        table.add_row(
            path.name,
            weights.target[:16],
            f"{row:,}",
            f"{formula:,}" if formula == row else f"[bold red]{formula:,}[/]",
            f"{shape.layers}×{2 * shape.kv_heads * shape.head_dim}×2",
            f"{path.stat().st_size:,} bytes",
        )
    return table


def _size(state: StateDeclaration, num_tokens: int) -> str:
    return f"{(num_tokens * state.bytes_per_token + state.fixed_bytes) / 1e9:.2f} GB"


def _names() -> Table:
    from rich.table import Table

    from zllm_ref.model_files import DEFAULT_MODEL
    from zllm_ref.model_files.source import SCRIPTED_NAME, SEEDED_NAMES
    from zllm_ref.runtime.models.registry import MODEL_FAMILIES

    table = Table(title="--model")
    table.add_column("name")
    table.add_column("what it is")
    table.add_row(DEFAULT_MODEL.name, "the default: fetched once by pip, served from a GGUF file")
    for name in SEEDED_NAMES:
        table.add_row(name, "random weights made here from a seed")
    table.add_row(SCRIPTED_NAME, "no weights: says what a script says")
    table.add_row("FILE.gguf", "a GGUF file of architecture llama")
    table.add_row("FOLDER", f"a Hugging Face folder: {', '.join(MODEL_FAMILIES)}")
    return table
