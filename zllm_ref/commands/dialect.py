"""`python -m zllm_ref dialect`: see what a dialect writes and reads, without a model and without a server.

dialect list                                               the nine, and how each writes a call
dialect parse  --dialect NAME --tools FILE [FILE|-]        a model's text → reasoning, content, calls, remarks
dialect render --dialect NAME --tools FILE [FILE|-]        a conversation in Chat Completions form → the exact prompt
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import Message, Role, ToolCall
from zllm_ref.canonical.request import ReasoningSettings, Tool
from zllm_ref.commands.chat_form import ChatFormError, conversation_from_text, tools_from_file
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    Diagnostic,
    DiagnosticKind,
    ParserEvent,
    ReasoningDelta,
    TextDelta,
)
from zllm_ref.dialect.registry import dialect_for
from zllm_ref.dialect.segment import text_of
from zllm_ref.dialect.tool_parser import ParseMode, ToolParser
from zllm_ref.dialect.unrenderable import UnrenderableValue
from zllm_ref.tokenizer.byte_vocabulary import byte_vocabulary


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("dialect", help="what a tool dialect writes and reads", description=__doc__.split("\n")[0])
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="the dialects, and how each writes a call")
    parse = actions.add_parser("parse", help="read a model's text")
    render = actions.add_parser("render", help="write a conversation")
    for action in (parse, render):
        action.add_argument("--dialect", required=True, choices=sorted(DEFINITIONS), metavar="NAME")
        action.add_argument("--tools", type=Path, metavar="FILE", help="JSON list of tools, as in a Chat Completions request")
        action.add_argument("--thinking", action="store_true", help="the text begins inside reasoning (render: reasoning is on)")
        action.add_argument("file", nargs="?", default="-", metavar="FILE", help="'-' or nothing: standard input")
    parse.add_argument("--mode", choices=[mode.value for mode in ParseMode], default=ParseMode.STRICT.value)
    parse.add_argument("--chunk", type=_positive, metavar="N", help="feed N characters at a time (the answer must not change)")
    render.add_argument("--no-thinking", action="store_true", help="reasoning is off")
    render.add_argument("--keep-reasoning", action="store_true", help="old reasoning stays, whatever the vendor's template does")
    render.add_argument(
        "--generation-prompt",
        action=argparse.BooleanOptionalAction,
        help="end with what asks the model for an answer (default: unless the last message is an answer)",
    )


def run(args: argparse.Namespace) -> int:
    try:
        match args.action:
            case "list":
                return _list()
            case "parse":
                return _parse(args)
            case _:
                return _render(args)
    except (ChatFormError, UnrenderableValue) as error:
        print(f"zllm_ref dialect {args.action}: {error}", file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as error:
        print(f"zllm_ref dialect {args.action}: {error}", file=sys.stderr)
        return 2


def _list() -> int:
    call = ToolCall("c", "f", parse_json_object('{"text": "a", "n": 1}'))
    for name in DEFINITIONS:
        written = text_of(dialect_for(None, byte_vocabulary(), name).render_calls(Message(Role.ASSISTANT, (call,))))
        print(f"{name:15} {json.dumps(written, ensure_ascii=False)}")
    return 0


def _parse(args: argparse.Namespace) -> int:
    text, tools = _input(args.file), _tools(args.tools)
    parser = ToolParser(
        DEFINITIONS[args.dialect],
        None,
        tools,
        starts_in_reasoning=args.thinking,
        mode=ParseMode(args.mode),
    )
    size = args.chunk or max(len(text), 1)
    events: list[ParserEvent] = []
    for start in range(0, len(text), size):
        events += parser.push_text(text[start : start + size])
    print(json.dumps(answer_of([*events, *parser.finish()]), ensure_ascii=False, indent=2))
    return 0


def _render(args: argparse.Namespace) -> int:
    messages, tools = conversation_from_text(_input(args.file), args.file)
    if args.tools is not None:
        tools = _tools(args.tools)
    wants_answer = args.generation_prompt
    if wants_answer is None:
        wants_answer = not messages or messages[-1].role is not Role.ASSISTANT
    enabled = True if args.thinking else False if args.no_thinking else None
    segments = dialect_for(None, byte_vocabulary(), args.dialect).render(
        messages,
        tools,
        reasoning=ReasoningSettings(enabled=enabled),
        keep_reasoning=args.keep_reasoning,
        add_generation_prompt=wants_answer,
    )
    sys.stdout.write(text_of(segments))
    return 0


def answer_of(events: Sequence[ParserEvent]) -> dict[str, Any]:
    """What a client would hold at the end. Calls that never finished are not calls; the diagnostics name them."""
    reasoning, content = "", ""
    names: dict[int, str] = {}
    streamed: dict[int, str] = {}
    calls: list[dict[str, str]] = []
    diagnostics: list[Diagnostic] = []
    for event in events:
        match event:
            case ReasoningDelta():
                reasoning += event.text
            case TextDelta():
                content += event.text
            case CallStarted():
                names[event.ordinal] = f"{event.namespace}.{event.name}" if event.namespace else event.name
                streamed[event.ordinal] = ""
            case ArgumentsDelta():
                streamed[event.ordinal] += event.text
            case CallFinished():
                calls.append({"name": names[event.ordinal], "arguments": event.arguments})
            case Diagnostic():
                diagnostics.append(event)
    was_cut = any(diagnostic.kind is DiagnosticKind.INCOMPLETE_CALL for diagnostic in diagnostics)
    return {
        "reasoning": reasoning,
        "content": content,
        "tool_calls": calls,
        "diagnostics": [_diagnostic(diagnostic, names, streamed) for diagnostic in diagnostics],
        "finish_reason": "length" if was_cut else "tool_calls" if calls else "stop",
    }


def _diagnostic(diagnostic: Diagnostic, names: dict[int, str], streamed: dict[int, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": diagnostic.kind.value, "message": diagnostic.message}
    if diagnostic.ordinal is not None:
        shown["call"] = names[diagnostic.ordinal]
        shown["streamed_arguments"] = streamed[diagnostic.ordinal]
    return shown


def _input(file: str) -> str:
    """Bytes as they are: no line end is translated."""
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    return data.decode("utf-8")


def _tools(file: Path | None) -> tuple[Tool, ...]:
    return () if file is None else tools_from_file(file)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {number}, allowed 1 and more")
    return number
