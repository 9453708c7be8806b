"""A dialect with one tool and one value, and fences over it, for tests that are about something else."""

from __future__ import annotations

from typing import Any

from tests.fence.layouts import LAYOUTS
from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.request import (
    FunctionTool,
    ToolChoiceRequired,
)
from zllm_ref.fence import FenceCompiler, FenceRequest, TokenFence, build_fence
from zllm_ref.fence.grammar import (
    CallGrammar,
    JsonBySchema,
    Literal,
    Marker,
    Node,
    Sequence,
    ToolGrammar,
)
from zllm_ref.fence.mask import ids_of
from zllm_ref.tokenizer import byte_vocabulary

COMPILER = FenceCompiler(byte_vocabulary())
GLM = next(layout for layout in LAYOUTS if layout.name == "glm 4.7")
STOPS = {"<|endoftext|>", "<|im_end|>", "<｜end▁of▁sentence｜>"}


def one_value(node: Node) -> ToolGrammar:
    """A dialect with one tool `f` whose call is `(` value `)`."""
    call = CallGrammar("f", Sequence((Literal("("), node)))
    return ToolGrammar("one value", Marker("<tool_call>"), (call,), closing=Marker("</tool_call>"))


def value(schema: dict[str, Any]) -> JsonBySchema:
    held = from_python(schema)
    assert isinstance(held, JsonObject)
    return JsonBySchema(held, "tools[0].parameters.properties.v")


def built(grammar: ToolGrammar | None, **settings: Any) -> TokenFence:
    fence = build_fence(FenceRequest(grammar, **{"tool_choice": ToolChoiceRequired(), **settings}), COMPILER)
    assert fence is not None
    return fence


def reads(fence: TokenFence, text: str) -> bool:
    """The fence takes all of the text, token by token out of its own masks."""
    ids = fence.plan.vocabulary.encode_with_markers(text)
    return fence.legal_prefix(ids) == len(ids)


def spelled(fence: TokenFence) -> set[str]:
    mask = fence.allowed()
    assert mask is not None
    return {fence.plan.vocabulary.decode([token_id]) for token_id in ids_of(mask)}


STRICT = (FunctionTool("f", strict=True),)
