"""The playground: a conversation written by any family's template, its tokens, and what of it the cache has; no model runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.json_value import JsonObject, to_python
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import ReasoningSettings, Request
from zllm_ref.dialect import Segment, UnrenderableValue, encode
from zllm_ref.dialect.segment import Author
from zllm_ref.dialect.template import TemplateError
from zllm_ref.engine.bridge import Engine, cache_namespace
from zllm_ref.inspector.explanation import Writing
from zllm_ref.inspector.family import FAMILIES, HARD, SOFT, Control, Family
from zllm_ref.inspector.family_tokenizers import FamilyTokenizer, FamilyTokenizers
from zllm_ref.inspector.merges import merges
from zllm_ref.inspector.problem import invalid
from zllm_ref.inspector.prompt_view import PromptView
from zllm_ref.inspector.token_panels import MOST_TOKENS_A_PAGE, segment_list, token_columns
from zllm_ref.protocols import openai_chat
from zllm_ref.protocols.context import RequestContext
from zllm_ref.protocols.seal import Seal
from zllm_ref.tokenizer.vocabulary import Vocabulary

LOADED = "loaded"
NO_TOOLS = "This template never shows the tools to the model."
_MODEL = "playground"
_LOOKS = 3
SERVED_CONTROLS = (
    Control("on", "thinking is asked for", HARD, ReasoningSettings(enabled=True)),
    Control("off", "thinking is closed, where the template can", HARD, ReasoningSettings(enabled=False)),
    Control("high", "high effort, where the template has words for it", SOFT, ReasoningSettings(enabled=True, effort="high")),
)


class Playground:
    def __init__(self, engine: Engine, tokenizers: FamilyTokenizers | None = None) -> None:
        self._engine = engine
        self._tokenizers = tokenizers or FamilyTokenizers()

    def families(self) -> dict[str, Any]:
        """What can be chosen. Reads no tokenizer."""
        loaded = self._engine.loaded
        served = {
            "name": LOADED,
            "title": f"{loaded.card.id} (served)",
            "dialect": loaded.dialect.name,
            "source": "the served model's own",
            "tokenizer": _tokenizer(FamilyTokenizer(loaded.card.id, loaded.vocabulary, "served model", True)),
            "has_tools": True,
            "control": "both",
            "controls": [_control(control) for control in SERVED_CONTROLS],
            "can_run": True,
        }
        return {"families": [served, *(self._family(family) for family in FAMILIES.values())]}

    def _family(self, family: Family) -> dict[str, Any]:
        found = self._tokenizers.source(family.tokenizer)
        return {
            "name": family.name,
            "title": family.title,
            "dialect": family.dialect,
            "source": family.source,
            "tokenizer": {
                "name": found[0] if found is not None else "the served model's",
                "is_real": found is not None,
                "source": found[1] if found is not None else "served model",
                "vocabulary_size": None,
                "note": None if found is not None else "No installed package carries this family's tokenizer.",
            },
            "has_tools": family.shows_tools,
            "control": family.control,
            "controls": [_control(control) for control in family.controls],
            "can_run": False,
        }

    def render(self, body: JsonObject, namespace: str) -> dict[str, Any]:
        """Raises InspectProblem for what cannot be read or written."""
        name = body.get("family")
        request = self._request(body, namespace)
        try:
            if name == LOADED:
                return self._render_served(body, request)
            family = self._known(name)
            tokenizer = self._tokenizers.get(family.tokenizer, self._engine.loaded.vocabulary, family.markers)
            writing = Writing(family.dialect or family.name, family.renderer, tokenizer.vocabulary, family.shows_tools)
            segments = writing.segments(request)
        except (TemplateError, UnrenderableValue) as error:
            raise invalid(str(error)) from error
        view = _view(tokenizer.vocabulary, request, segments, writing.dialect)
        notes = [] if family.shows_tools or not request.tools else [NO_TOOLS]
        return {**_rendered(family.name, view, tokenizer), "reusable": None, "chat_request": None, "notes": notes}

    def _render_served(self, body: JsonObject, request: Request) -> dict[str, Any]:
        loaded = self._engine.loaded
        try:
            prompt = self._engine.prompt(replace(request, model=loaded.card.id))
        except ApiError as error:
            raise invalid(error.message) from error
        view = _view(loaded.vocabulary, request, prompt.segments, loaded.dialect.name)
        tokenizer = FamilyTokenizer(loaded.card.id, loaded.vocabulary, "served model", True)
        found = self._reusable(request, view)
        chat: dict[str, Any] = {"model": loaded.card.id, "messages": to_python(body.get("messages"))}
        if request.tools:
            chat["tools"] = to_python(body.get("tools"))
        effort = request.reasoning.effort
        if request.reasoning.enabled is not None:
            chat["reasoning_effort"] = "none" if not request.reasoning.enabled else effort or "medium"
        return {**_rendered(LOADED, view, tokenizer), "reusable": found, "chat_request": chat, "notes": []}

    def _reusable(self, request: Request, view: PromptView) -> dict[str, Any]:
        """What a request with this prompt could reuse now. The cache may change while it is asked: then once more."""
        for _ in range(_LOOKS):
            try:
                hit = self._engine.loaded.cache.lookup(cache_namespace(request), view.axis.ids)
            except (KeyError, RuntimeError, IndexError):
                continue
            return {
                "tokens": hit.length if hit is not None else 0,
                "tier": hit.tier if hit is not None else None,
                "cache_id": hit.cache_id if hit is not None else None,
            }
        return {"tokens": 0, "tier": None, "cache_id": None}

    def merges(self, body: JsonObject) -> dict[str, Any]:
        name, text = body.get("family"), body.get("text")
        if not isinstance(text, str):
            raise invalid("text: allowed a string")
        loaded = self._engine.loaded
        tokenizer = FamilyTokenizer(loaded.card.id, loaded.vocabulary, "served model", True)
        if name != LOADED:
            family = self._known(name)
            tokenizer = self._tokenizers.get(family.tokenizer, loaded.vocabulary, family.markers)
        return {"words": merges(tokenizer.vocabulary, text), "tokenizer": _tokenizer(tokenizer)}

    @staticmethod
    def _known(name: object) -> Family:
        family = FAMILIES.get(name) if isinstance(name, str) else None
        if family is None:
            raise invalid(f"family: got {str(name)[:80]!r}, allowed {', '.join([LOADED, *FAMILIES])}")
        return family

    @staticmethod
    def _request(body: JsonObject, namespace: str) -> Request:
        """The messages and tools as Chat Completions reads them."""
        given = {name: value for name, value in body.pairs if name in ("messages", "tools")}
        pairs = (("model", _MODEL), *((name, value) for name, value in given.items() if value not in (None, ())))
        context = RequestContext(
            "0" * 24, lambda: int(time.time()), (ModelCard(_MODEL, 0, 0),), Seal(b"0" * 32), namespace=namespace
        )
        try:
            request = openai_chat.parse_request(JsonObject(pairs), context).request
        except ApiError as error:
            raise invalid(error.message) from error
        return replace(request, reasoning=_reasoning(body.get("reasoning")))


def _reasoning(value: object) -> ReasoningSettings:
    if value is None:
        return ReasoningSettings()
    if not isinstance(value, JsonObject):
        raise invalid("reasoning: allowed an object with enabled and effort")
    enabled, effort = value.get("enabled"), value.get("effort")
    if not isinstance(enabled, bool | None) or not isinstance(effort, str | None):
        raise invalid("reasoning: got another type, allowed enabled: boolean or null, effort: string or null")
    return ReasoningSettings(enabled=enabled, effort=effort)


def _view(vocabulary: Vocabulary, request: Request, segments: Sequence[Segment], dialect: str) -> PromptView:
    ids = encode(segments, vocabulary)
    return PromptView(vocabulary, request.messages, request.tools, tuple(segments), ids, dialect=dialect)


def _rendered(family: str, view: PromptView, tokenizer: FamilyTokenizer) -> dict[str, Any]:
    return {
        "family": family,
        "tokenizer": _tokenizer(tokenizer),
        "segments": segment_list(view.axis, view.owners),
        "text": view.axis.text,
        "tokens": token_columns(view.axis, 0, MOST_TOKENS_A_PAGE),
        "num_tokens": view.axis.num_tokens,
        "typed_markers": _typed_markers(view, tokenizer.vocabulary),
    }


def _typed_markers(view: PromptView, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Markers that somebody typed: they spell one, and are text."""
    found = []
    for placed in view.axis.placed:
        if placed.segment.origin.author not in (Author.CLIENT, Author.TOOL_SCHEMA):
            continue
        place = placed.bytes[0]
        for part in vocabulary.split_at_markers(placed.segment.text):
            span = (place, place + len(part.encode()))
            place = span[1]
            if vocabulary.marker_id(part) is not None and span[1] <= placed.bytes[1]:
                found.append({"text": part, "utf16": list(view.axis.utf16(span)), "tokens": list(view.axis.tokens_of(span))})
    return found


def _tokenizer(tokenizer: FamilyTokenizer) -> dict[str, Any]:
    return {
        "name": tokenizer.name,
        "is_real": tokenizer.is_real,
        "source": tokenizer.source,
        "vocabulary_size": tokenizer.vocabulary.size,
        "note": tokenizer.note,
    }


def _control(control: Control) -> dict[str, Any]:
    reasoning = {"enabled": control.reasoning.enabled, "effort": control.reasoning.effort}
    return {"name": control.name, "title": control.title, "kind": control.kind, "reasoning": reasoning}
