"""What a protocol must be told to translate one request: identity, time, models, profile, keys. Nothing here is looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.protocols.seal import Seal

LONG_CONTEXT_SUFFIX = "[1m]"  # Claude Code appends it to model names (protocols.md 2.3); it asks for nothing that we could give


class Profile(StrEnum):
    """Whose behaviour decides where sources disagree (docs/decisions)."""

    OPENAI = "openai"
    DEEPSEEK = "deepseek"
    CODEX = "codex"
    OPENRESPONSES = "openresponses"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """`request_id` is hexadecimal and unique; ids of answers and items grow from it. `clock` gives unix seconds."""

    request_id: str
    clock: Callable[[], int]
    models: tuple[ModelCard, ...]
    seal: Seal
    profile: Profile = Profile.OPENAI
    namespace: str = ""
    strip_billing_line: bool = True
    tokens_per_step: int | None = None

    def model(self, name: str) -> ModelCard:
        """The card of the named model. Raises ApiError(UNKNOWN_MODEL)."""
        plain = name.removesuffix(LONG_CONTEXT_SUFFIX)
        for card in self.models:
            if card.answers_to(name) or card.answers_to(plain):
                return card
        known = ", ".join(card.id for card in self.models)
        raise ApiError(ErrorKind.UNKNOWN_MODEL, f"model: got '{name[:200]}', allowed {known}", param="model")
