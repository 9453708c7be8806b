"""Who guesses: from `--draft` and its companions to a factory of drafters, or a plain word on why it cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from zllm_ref.config import DRAFTERS, EngineSettings
from zllm_ref.engine.reading import ReadModel, Report, read_model
from zllm_ref.runtime.draft.drafter import DrafterFactory
from zllm_ref.runtime.draft.mtp import MOST_LENGTH as MTP_LENGTH
from zllm_ref.runtime.draft.mtp import DraftingModel, MtpFactory
from zllm_ref.runtime.draft.prompt_lookup import MOST_LENGTH as LOOKUP_LENGTH
from zllm_ref.runtime.draft.prompt_lookup import PromptLookupFactory
from zllm_ref.runtime.draft.small_model import MOST_LENGTH as SMALL_LENGTH
from zllm_ref.runtime.draft.small_model import SmallModelFactory
from zllm_ref.runtime.state import StateDeclaration

_NEED_A_MODEL = ("model", "dspark")
"""Drafters for which `--draft-model` means something."""


def drafters_for(settings: EngineSettings, target: ReadModel, report: Report) -> DrafterFactory | None:
    """The factory for the loaded model; None: nobody guesses. What drafters keep in the state is declared by the model then.

    Raises ValueError where the settings ask for what the model or the files do not have.
    """
    draft = settings.draft
    if draft.drafter not in DRAFTERS:
        raise ValueError(f"--draft: got {draft.drafter!r}, allowed {', '.join(DRAFTERS)}")
    if draft.model and draft.drafter not in _NEED_A_MODEL:
        raise ValueError(f"--draft-model: got {draft.model!r} with --draft {draft.drafter}, allowed with --draft model or dspark")
    if draft.most_tokens is not None and draft.drafter == "none":
        raise ValueError(f"--draft-tokens: got {draft.most_tokens} with --draft none, allowed with a drafter")
    match draft.drafter:
        case "prompt_lookup":
            factory: DrafterFactory = PromptLookupFactory(draft.most_tokens or LOOKUP_LENGTH)
        case "mtp":
            factory = _mtp(target, draft.most_tokens)
        case "model":
            factory = _small_model(settings, target, report)
        case "dspark":
            factory = _dspark(settings, target)
        case _:
            return None
    if factory.state_tensors:
        target.model.state = StateDeclaration([*target.model.state.tensors, *factory.state_tensors])
    return factory


def _mtp(target: ReadModel, most_tokens: int | None) -> DrafterFactory:
    if not getattr(target.model, "num_draft_layers", 0):
        raise ValueError(
            f"--draft mtp: got {target.name} ({target.model.architecture}), which brings no layer for further tokens, "
            "allowed a checkpoint with one (glm4_moe, deepseek_v32, deepseek_v4), or another drafter"
        )
    return MtpFactory(cast(DraftingModel, target.model), target.vocabulary.size, most_tokens or MTP_LENGTH)


def _small_model(settings: EngineSettings, target: ReadModel, report: Report) -> DrafterFactory:
    draft = settings.draft
    if not draft.model:
        raise ValueError("--draft model: got no --draft-model, allowed a model's name, a GGUF file or a Hugging Face folder")
    chosen = replace(settings.model, model=draft.model, context_length=None, dialect=None)
    small = read_model(chosen, report)
    if small.vocabulary.digest != target.vocabulary.digest:
        raise ValueError(
            f"--draft-model: got {small.name} with a tokenizer of {small.vocabulary.size} ids, "
            f"allowed one with the tokenizer of {target.name} ({target.vocabulary.size} ids, the same to the byte)"
        )
    return SmallModelFactory(small.model, target.vocabulary.size, draft.most_tokens or SMALL_LENGTH)


def _dspark(settings: EngineSettings, target: ReadModel) -> DrafterFactory:
    from zllm_ref.runtime.draft.dspark import default_weights, load_dspark

    draft = settings.draft
    path = Path(draft.model) if draft.model else default_weights(target.digest)
    if path is None:
        raise ValueError(
            f"--draft dspark: got no --draft-model, and there are no weights for {target.name} here, allowed a file of weights"
        )
    return load_dspark(path, target.model, target.vocabulary.size, draft.most_tokens)
