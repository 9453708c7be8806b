"""What a client asks for, whichever protocol it asked in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.message import Message


class Protocol(StrEnum):
    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool with a JSON Schema for its arguments. `parameters` None means: no arguments were declared."""

    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool = False
    namespace: str | None = None
    deferred: bool = False
    """`defer_loading`: known to the server, but not shown at the front of the prompt."""
    path: str = field(default="", compare=False)
    """Where the schema stands in the client's request, for errors."""


@dataclass(frozen=True, slots=True)
class CustomTool:
    """A free-form tool; `grammar` is (syntax, definition) with syntax `lark` or `regex`."""

    name: str
    description: str | None = None
    grammar: tuple[str, str] | None = None
    namespace: str | None = None
    path: str = field(default="", compare=False)
    """Where the grammar's definition stands in the client's request, for errors."""


Tool: TypeAlias = FunctionTool | CustomTool


@dataclass(frozen=True, slots=True)
class ToolChoiceAuto:
    """The model may call; `allowed` narrows the tools that it may call (None: all)."""

    allowed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolChoiceNone:
    """The model must not call."""


@dataclass(frozen=True, slots=True)
class ToolChoiceRequired:
    """The model must call at least once; `allowed` as above."""

    allowed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolChoiceNamed:
    """The model must call this tool."""

    name: str


ToolChoice: TypeAlias = ToolChoiceAuto | ToolChoiceNone | ToolChoiceRequired | ToolChoiceNamed


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Free text."""


@dataclass(frozen=True, slots=True)
class JsonObjectFormat:
    """Any JSON object."""


@dataclass(frozen=True, slots=True)
class JsonSchemaFormat:
    name: str
    schema: JsonObject
    strict: bool = False


ResponseFormat: TypeAlias = TextFormat | JsonObjectFormat | JsonSchemaFormat


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen from the logits. `seed` None: the engine draws one, and says so in nothing but the tokens."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0: off."""
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningSettings:
    """`enabled` None: as the model's template does by itself."""

    enabled: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Where the prefix cache may look. `namespace` separates keys; the rest are hints, never proofs."""

    namespace: str = ""
    cache_id: str | None = None
    salt: str | None = None
    key: str | None = None
    """`prompt_cache_key`."""
    marked: bool = False
    """The client put a `cache_control` breakpoint: a kept state is reported as written (AN13)."""


@dataclass(frozen=True, slots=True)
class Request:
    request_id: str
    protocol: Protocol
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoiceAuto)
    parallel_tool_calls: bool = True
    response_format: ResponseFormat = field(default_factory=TextFormat)
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    """None: until the context is full."""
    stop: tuple[str, ...] = ()
    num_choices: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    reasoning: ReasoningSettings = field(default_factory=ReasoningSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    ignore_eos: bool = False
    """Benchmarks: go on past the model's own end."""
    tokens_per_step: int | None = None
    """Tests: how many tokens the scripted model gives in one step. Models that compute take no notice."""
