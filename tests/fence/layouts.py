"""Grammars of five families written by hand, with readers that take their calls apart again: the tests' own dialects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.fence.grammar import (
    CallGrammar,
    JsonBySchema,
    Literal,
    Marker,
    Parameter,
    RawText,
    ReasoningGrammar,
    Sequence,
    ToolGrammar,
    UnorderedParameters,
)

Schema = dict[str, Any]
Tools = dict[str, Schema]
THINK = ReasoningGrammar(Marker("</think>"))
D = Marker("｜DSML｜")


@dataclass(frozen=True)
class Layout:
    """`grammar(tools)` is the dialect's grammar; `read(text, tools)` gives the calls of a region, markers spelled out."""

    name: str
    grammar: Callable[[Tools], ToolGrammar]
    read: Callable[[str, Tools], list[tuple[str, Schema]]]


def held(schema: Any, root: Schema) -> JsonObject:
    """A property's schema that stands alone."""
    alone = dict(schema)
    if "$defs" in root:
        alone["$defs"] = root["$defs"]
    value = from_python(alone)
    assert isinstance(value, JsonObject)
    return value


def parameters(schema: Schema, write: Callable[[str, JsonObject, bool], Sequence]) -> tuple[Parameter, ...]:
    required = set(schema.get("required", ()))
    return tuple(
        Parameter(name, write(name, held(one, schema), one.get("type") == "string"), name in required)
        for name, one in schema.get("properties", {}).items()
    )


def dsml(word: str, space: str = "") -> Layout:
    def parameter(name: str, schema: JsonObject, is_string: bool) -> Sequence:
        head = f'{space}parameter name="{name}" string="{str(is_string).lower()}">'
        closer = (Literal("</"), D, Literal(f"{space}parameter>"))
        value = (RawText(closer, schema, path=name),) if is_string else (JsonBySchema(schema, name), *closer)
        return Sequence((Literal("<"), D, Literal(head), *value))

    def grammar(tools: Tools) -> ToolGrammar:
        calls = tuple(
            CallGrammar(
                name,
                Sequence(
                    (
                        Literal("<"),
                        D,
                        Literal(f'{space}invoke name="{name}">\n'),
                        UnorderedParameters(parameters(schema, parameter), Literal("\n"), path=name),
                        Literal("\n</"),
                        D,
                        Literal(f"{space}invoke>"),
                    )
                ),
            )
            for name, schema in tools.items()
        )
        return ToolGrammar(
            revision=f"dsml {word}",
            trigger=D,
            trigger_needs="<",
            lead="\n\n<",
            head=Literal(f"{space}{word}>\n"),
            calls=calls,
            between=Literal("\n"),
            closing=Sequence((Literal("\n</"), D, Literal(f"{space}{word}>"))),
            stop_markers=("<｜end▁of▁sentence｜>",),
            reasoning=THINK,
        )

    def read(text: str, tools: Tools) -> list[tuple[str, Schema]]:
        tag = f"｜DSML｜{space}"
        body = re.fullmatch(rf"(?s)\n\n<{tag}{word}>\n(.*)\n</{tag}{word}>", text)
        assert body is not None, text
        calls = []
        for name, inner in re.findall(rf'(?s)<{tag}invoke name="([^"]*)">\n(.*?)\n</{tag}invoke>(?:\n|$)', body[1]):
            pairs = re.findall(rf'(?s)<{tag}parameter name="([^"]*)" string="(true|false)">(.*?)</{tag}parameter>(?:\n|$)', inner)
            calls.append((name, as_object([(key, value if kind == "true" else json.loads(value)) for key, kind, value in pairs])))
        return calls

    return Layout(f"dsml {word.strip()}", grammar, read)


def glm(line: str) -> Layout:
    """`line` is "\\n" in 4.5, nothing in 4.7."""

    def parameter(name: str, schema: JsonObject, is_string: bool) -> Sequence:
        head = (Marker("<arg_key>"), Literal(name), Marker("</arg_key>"), Literal(line), Marker("<arg_value>"))
        closer = (Marker("</arg_value>"), Literal(line))
        return (
            Sequence((*head, RawText(closer, schema, path=name)))
            if is_string
            else Sequence((*head, JsonBySchema(schema, name), *closer))
        )

    def grammar(tools: Tools) -> ToolGrammar:
        return ToolGrammar(
            revision="glm",
            trigger=Marker("<tool_call>"),
            lead=line,
            calls=tuple(
                CallGrammar(
                    name,
                    Sequence(
                        (
                            Literal(name + line),
                            UnorderedParameters(parameters(schema, parameter), path=name),
                            Marker("</tool_call>"),
                        )
                    ),
                )
                for name, schema in tools.items()
            ),
            between=Sequence((Literal(line), Marker("<tool_call>"))),
            stop_markers=("<|endoftext|>", "<|user|>", "<|observation|>"),
            reasoning=THINK,
        )

    def read(text: str, tools: Tools) -> list[tuple[str, Schema]]:
        calls = []
        found = re.findall(r"(?s)(\n?)<tool_call>([^<\n]*)(\n?)(.*?)</tool_call>", text)
        assert "".join(f"{a}<tool_call>{b}{c}{d}</tool_call>" for a, b, c, d in found) == text, text
        for _, name, _, inner in found:
            pairs = re.findall(r"(?s)<arg_key>(.*?)</arg_key>\n?<arg_value>(.*?)</arg_value>", inner)
            kinds = tools[name].get("properties", {})
            calls.append(
                (
                    name,
                    as_object(
                        [(key, value if kinds[key].get("type") == "string" else json.loads(value)) for key, value in pairs]
                    ),
                )
            )
        return calls

    return Layout("glm 4.5" if line else "glm 4.7", grammar, read)


def chatml() -> Layout:
    def parameter(name: str, schema: JsonObject, is_string: bool) -> Sequence:
        return Sequence((Literal(f"{json.dumps(name, ensure_ascii=False)}: "), JsonBySchema(schema, name)))

    def grammar(tools: Tools) -> ToolGrammar:
        return ToolGrammar(
            revision="chatml",
            trigger=Marker("<tool_call>"),
            calls=tuple(
                CallGrammar(
                    name,
                    Sequence(
                        (
                            Literal(f'\n{{"name": "{name}", "arguments": {{'),
                            UnorderedParameters(parameters(schema, parameter), Literal(", "), path=name),
                            Literal("}}\n"),
                            Marker("</tool_call>"),
                        )
                    ),
                )
                for name, schema in tools.items()
            ),
            between=Sequence((Literal("\n"), Marker("<tool_call>"))),
            stop_markers=("<|im_end|>",),
            reasoning=ReasoningGrammar(Marker("</think>"), after_close="\n\n"),
        )

    def read(text: str, tools: Tools) -> list[tuple[str, Schema]]:
        calls, rest = [], text
        while rest:
            opened = re.match(r"\n*<tool_call>\n", rest)
            assert opened is not None, text
            value, end = json.JSONDecoder(object_pairs_hook=as_object).raw_decode(rest, opened.end())
            assert rest.startswith("\n</tool_call>", end), text
            calls.append((value["name"], value["arguments"]))
            rest = rest[end + len("\n</tool_call>") :]
        return calls

    return Layout("chatml", grammar, read)


def qwen_coder() -> Layout:
    def parameter(name: str, schema: JsonObject, is_string: bool) -> Sequence:
        head = Literal(f"<parameter={name}>\n")
        if is_string:
            return Sequence((head, RawText((Literal("\n</parameter>\n"),), schema, excludes=("</parameter>",), path=name)))
        return Sequence((head, JsonBySchema(schema, name), Literal("\n</parameter>\n")))

    def grammar(tools: Tools) -> ToolGrammar:
        return ToolGrammar(
            revision="qwen3-coder",
            trigger=Marker("<tool_call>"),
            lead="\n\n",
            calls=tuple(
                CallGrammar(
                    name,
                    Sequence(
                        (
                            Literal(f"\n<function={name}>\n"),
                            UnorderedParameters(parameters(schema, parameter), path=name),
                            Literal("</function>\n"),
                            Marker("</tool_call>"),
                        )
                    ),
                )
                for name, schema in tools.items()
            ),
            between=Sequence((Literal("\n"), Marker("<tool_call>"))),
            stop_markers=("<|im_end|>",),
            reasoning=THINK,
        )

    def read(text: str, tools: Tools) -> list[tuple[str, Schema]]:
        calls = []
        for name, inner in re.findall(r"(?s)<tool_call>\n<function=([^>\n]*)>\n(.*?)</function>\n</tool_call>", text):
            pairs = re.findall(r"(?s)<parameter=([^>\n]*)>\n(.*?)\n</parameter>\n", inner)
            kinds = tools[name].get("properties", {})
            calls.append(
                (
                    name,
                    as_object(
                        [(key, value if kinds[key].get("type") == "string" else json.loads(value)) for key, value in pairs]
                    ),
                )
            )
        assert len(calls) == text.count("<tool_call>"), text
        return calls

    return Layout("qwen3-coder", grammar, read)


def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    assert len(set(keys)) == len(keys), f"a key occurs twice: {keys}"
    return dict(pairs)


LAYOUTS = (dsml("function_calls"), dsml("tool_calls"), dsml("calls", " "), glm("\n"), glm(""), chatml(), qwen_coder())
