"""`fence explain`: what a fenced model may say after a text, and why. Exit 0: the text is legal so far, 1: it is not."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zllm_ref.canonical.request import ToolChoice
    from zllm_ref.fence.explanation import Explanation
    from zllm_ref.tokenizer import Vocabulary


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("fence", help="what a fenced model may say next, and why")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    explain = actions.add_parser("explain", help="what is allowed after TEXT")
    explain.add_argument("--dialect", required=True, help="name of the dialect, as `dialect list` prints it")
    explain.add_argument("--tools", required=True, type=Path, help="JSON file: a list of tools, or a request with tools")
    explain.add_argument("--tool-choice", required=True, help="auto, required, none, or the name of a tool")
    explain.add_argument("--thinking", action="store_true", help="the text begins inside an open reasoning")
    explain.add_argument("--no-parallel", action="store_true", help="one call at most")
    explain.add_argument("--vocabulary", type=Path, help="tokenizer.json or GGUF file (default: one token a byte)")
    explain.add_argument("text", nargs="?", default="", help="what was said so far, markers spelled out; - reads it from stdin")
    explain.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from zllm_ref.canonical.error import ApiError
    from zllm_ref.commands.chat_form import ChatFormError, tools_from_file
    from zllm_ref.dialect.registry import UnknownDialect, dialect_for
    from zllm_ref.fence import FenceCompiler, FenceRequest, build_fence
    from zllm_ref.fence.explanation import explain
    from zllm_ref.tokenizer import VocabularyError

    try:
        vocabulary = _vocabulary(args.vocabulary)
        dialect = dialect_for(None, vocabulary, args.dialect)
        tools = tools_from_file(args.tools)
        request = FenceRequest(
            grammar=dialect.fence_grammar(tools),
            tools=tools,
            tool_choice=_choice(args.tool_choice),
            parallel_tool_calls=not args.no_parallel,
            starts_in_reasoning=args.thinking,
            may_open_reasoning=False,
        )
        fence = build_fence(request, FenceCompiler(vocabulary))
    except (ApiError, ChatFormError, OSError, UnknownDialect, VocabularyError) as error:
        print(f"fence explain: {error}", file=sys.stderr)
        return 2
    assert fence is not None
    text = sys.stdin.read() if args.text == "-" else args.text
    found = explain(fence, vocabulary.encode_with_markers(text))
    for problem in fence.problems:
        print(f"not held   {problem}")
    _print(found)
    return 1 if found.refused else 0


def _print(found: Explanation) -> None:
    if found.refused is not None:
        print(f"refused    {found.refused}")
    print(f"where      {found.where}")
    total = "every token" if found.num_allowed is None else f"{found.num_allowed} tokens"
    shown = " ".join(ascii(text) if not text.isprintable() else repr(text) for text in found.allowed)
    more = " …" if found.num_allowed is not None and found.num_allowed > len(found.allowed) + len(found.markers) else ""
    print(f"allowed    {total}{': ' + shown + more if shown else ''}")
    if found.markers:
        print(f"markers    {' '.join(found.markers)}")
    print(f"forced     {found.forced!r}" if found.forced else "forced     nothing")
    for reason in found.why:
        print(f"why        {reason}")


def _choice(text: str) -> ToolChoice:
    from zllm_ref.canonical.request import ToolChoiceAuto, ToolChoiceNamed, ToolChoiceNone, ToolChoiceRequired

    match text:
        case "auto":
            return ToolChoiceAuto()
        case "required":
            return ToolChoiceRequired()
        case "none":
            return ToolChoiceNone()
        case name:
            return ToolChoiceNamed(name)


def _vocabulary(path: Path | None) -> Vocabulary:
    from zllm_ref.tokenizer import byte_vocabulary, vocabulary_from_gguf, vocabulary_from_tokenizer_json

    if path is None:
        return byte_vocabulary()
    return vocabulary_from_gguf(path) if path.suffix == ".gguf" else vocabulary_from_tokenizer_json(path)
