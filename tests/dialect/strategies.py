"""Tools, calls and texts that were chosen to hurt."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from zllm_ref.canonical.json_value import JsonNumber, JsonObject, JsonValue
from zllm_ref.canonical.message import Message, Part, Role, ToolCall
from zllm_ref.canonical.request import FunctionTool
from zllm_ref.tokenizer.byte_vocabulary import CHATML_MARKERS, DIALECT_MARKERS

MARKERS = (*CHATML_MARKERS, *DIALECT_MARKERS)
FRAGMENTS = (
    *MARKERS,
    "\n\n<｜DSML｜tool_calls>\n",
    "<｜DSML｜ calls>\n",
    "<｜DSML｜function_calls>\n",
    '<｜DSML｜invoke name="get">\n',
    '<｜DSML｜ invoke name="get">\n',
    '<｜DSML｜parameter name="a" string="true">',
    '<｜DSML｜parameter name="b" string="false">',
    "</｜DSML｜parameter>",
    "</｜DSML｜ parameter>",
    "\n</｜DSML｜invoke>",
    "\n</｜DSML｜tool_calls>",
    "</｜DSML｜",
    "｜DSML",
    "\n<tool_call>",
    "<tool_call>\n",
    '{"name": "get", "arguments": {"a": "',
    '"}}\n</tool_call>',
    '"}}',
    "<function=get>\n",
    "\n<function=",
    "<parameter=a>\n",
    "<parameter=b>\n",
    "\n</parameter>\n",
    "</parameter>",
    "</function>\n",
    "get",
    "a",
    "b",
    "1",
    "true",
    "null",
    "{",
    "}",
    '"',
    "\\",
    "\\u4e2d",
    "\\n",
    "[1, ",
    "]",
    "<",
    ">",
    "</",
    "\n",
    "\n\n",
    " ",
    "\u00a0",
    "&lt;",
    "<TOOL_CALL>",
    "<|DSML|INVOKE name='get'>",
    "Hello",
    "é🜁",
)

ODDITIES = ("\x00", "\x7f", "\u2028", "\ufeff", "\U000f0000", "\U000f0001", "\uffff", "`", "'", "\t", "\r\n", "0", "-", "ß", "漢")

hostile_text = st.lists(st.sampled_from((*FRAGMENTS, *ODDITIES)), max_size=6).map("".join)
"""Text out of pieces of tags; no lone surrogates (the edge of the API refuses them)."""

numbers = st.sampled_from(
    ["0", "-0", "1.0", "1e5", "1E+400", "0.1234567890123456789", "123456789012345678901234567890", "-7", "2.50"]
).map(JsonNumber)

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | numbers | hostile_text,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hostile_text, inner, max_size=3).map(lambda pairs: JsonObject(tuple(pairs.items())))
    ),
    max_leaves=4,
)

KEYS = ("a", "b", "city", "größe", "with space", "x-1")
VALUES = {
    "string": hostile_text,
    "integer": numbers,
    "boolean": st.booleans(),
    "array": st.lists(json_values, max_size=3).map(tuple),
    "object": st.dictionaries(hostile_text, json_values, max_size=3).map(lambda pairs: JsonObject(tuple(pairs.items()))),
    "null": st.none(),
}


@dataclass(frozen=True)
class Turn:
    """One answer of a model, and the tools that it was given."""

    message: Message
    tools: tuple[FunctionTool, ...]


@st.composite
def typed_turns(draw: st.DrawFn) -> Turn:
    """Legal calls: every value of the type that its schema names."""
    tools = []
    for name in draw(
        st.lists(st.sampled_from(["get", "get_it", "list_rooms", "Ünïcode", "a.b"]), min_size=1, max_size=2, unique=True)
    ):
        kinds = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(sorted(VALUES)), max_size=3))
        properties = JsonObject(tuple((key, JsonObject((("type", kind),))) for key, kind in kinds.items()))
        schema = JsonObject((("type", "object"), ("properties", properties)))
        tools.append((FunctionTool(name, None, schema), kinds))
    parts: list[Part] = []
    for number in range(draw(st.integers(1, 2))):
        tool, kinds = draw(st.sampled_from(tools))
        keys = draw(st.permutations(sorted(kinds)))
        pairs = tuple((key, draw(VALUES[kinds[key]])) for key in keys[: draw(st.integers(0, len(keys)))])
        parts.append(ToolCall(f"c{number}", tool.name, JsonObject(pairs)))
    return Turn(Message(Role.ASSISTANT, tuple(parts)), tuple(tool for tool, _ in tools))


@st.composite
def untyped_turns(draw: st.DrawFn) -> Turn:
    """Calls whose values the schema says nothing about, with keys and names that no API would allow."""
    pairs = draw(st.dictionaries(hostile_text, json_values, max_size=3))
    name = draw(st.sampled_from(["get", "x y", 'q"', "a>b"]) | hostile_text.filter(bool))
    tool = FunctionTool(name, None, JsonObject((("type", "object"),)))
    return Turn(Message(Role.ASSISTANT, (ToolCall("c", name, JsonObject(tuple(pairs.items()))),)), (tool,))
