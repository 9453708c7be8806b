"""The list of models, in the shape that the caller's protocol expects (protocols.md 1.6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.protocols.sse import dump

OWNER = "zllm_ref"


def openai_list(cards: Sequence[ModelCard]) -> str:
    return dump({"object": "list", "data": [_openai(card) for card in cards]})


def openai_model(card: ModelCard) -> str:
    return dump(_openai(card))


def anthropic_list(cards: Sequence[ModelCard]) -> str:
    first, last = (cards[0].id, cards[-1].id) if cards else (None, None)
    return dump({"data": [_anthropic(card) for card in cards], "has_more": False, "first_id": first, "last_id": last})


def anthropic_model(card: ModelCard) -> str:
    return dump(_anthropic(card))


def codex_list(cards: Sequence[ModelCard]) -> str:
    """What Codex asks its own service for (protocols.md 2.2.3): capabilities, not only names."""
    return dump({"models": [_codex(card) for card in cards]})


def find_model(cards: Sequence[ModelCard], name: str) -> ModelCard:
    """Raises ApiError(UNKNOWN_MODEL)."""
    for card in cards:
        if card.answers_to(name):
            return card
    known = ", ".join(card.id for card in cards)
    raise ApiError(ErrorKind.UNKNOWN_MODEL, f"model: got '{name[:200]}', allowed {known}", param="model")


def _openai(card: ModelCard) -> dict[str, Any]:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": OWNER, "context_length": card.context_length}


def _anthropic(card: ModelCard) -> dict[str, Any]:
    created = datetime.fromtimestamp(card.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": created,
        "max_input_tokens": card.context_length,
        "max_tokens": card.context_length,
    }


def _codex(card: ModelCard) -> dict[str, Any]:
    return {
        "slug": card.id,
        "display_name": card.id,
        "supported_reasoning_levels": [],
        "shell_type": "default",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 0,
        "base_instructions": "",
        "supports_reasoning_summaries": True,
        "support_verbosity": False,
        "apply_patch_tool_type": None,
        "truncation_policy": {"mode": "tokens", "limit": card.context_length},
        "supports_parallel_tool_calls": True,
        "context_window": card.context_length,
        "experimental_supported_tools": [],
    }
