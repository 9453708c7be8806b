"""Figures of the fence, printed, on real vocabularies and on an idle machine.

    ci/bench_fence --vocabulary SmolLM2.gguf --vocabulary tekken.json [--only 131] [--without-xgrammar]

A vocabulary is a GGUF file, a `tokenizer.json`, or a `tekken.json`; markers of the dialects that it lacks are added. Printed per
vocabulary and number of tools: time to the first mask (grammar written, compiled, mask computed), and one mask and advance per
token of a fenced answer. Beside it xgrammar on the same answer, where it is installed and has the dialect. Then free text, and
per dialect the share of tokens that were forced: they need no forward pass.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import zllm_ref.engine  # noqa: F401  what a server has in memory: the garbage collector looks at that, too
from ci.vocabulary_files import read, with_markers
from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.message import Message, Role, ToolCall
from zllm_ref.canonical.request import FunctionTool, ToolChoice, ToolChoiceAuto, ToolChoiceRequired
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.registry import dialect_for
from zllm_ref.fence import FenceCompiler, FenceRequest, GuardSettings, TokenFence, build_fence
from zllm_ref.tokenizer import Vocabulary

SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "string"},
    {"type": "integer", "minimum": 1, "maximum": 14},
    {"type": "array", "items": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}}, "required": ["a"]},
)
VALUES: tuple[Any, ...] = ("New York, near the park", 7, ["one", "two and three"], {"a": 1.5, "b": True})
PROSE = (
    "The quick brown fox jumps over the lazy dog; nobody, so far as anyone in the village could tell, had asked it to. "
    "On the other side of the river stood a mill whose wheel turned without grinding, and an old man who counted its turns.\n\n"
    "He had begun in spring, when the water was high, with a piece of chalk and a board, and by autumn both were used up. "
    "What he did with the numbers is not recorded. Some say he sent them to the capital, where they were added to others.\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=Path, action="append", required=True)
    parser.add_argument("--only", type=int, action="append", help="number of tools (default: 3 and 131)")
    parser.add_argument("--without-xgrammar", action="store_true")
    args = parser.parse_args()
    if len(args.vocabulary) > 1:
        one_by_one(args)
        return
    for path in args.vocabulary:
        vocabulary = with_markers(read(path))
        compiler = FenceCompiler(vocabulary)
        started = time.thread_time()
        compiler.tokenizer(vocabulary.stop_ids)
        print(f"\n{path.name}: {vocabulary.size} ids; trie of all pieces {milliseconds(started):.0f} ms, once a model")
        measured = [one for number in args.only or (3, 131) for one in measure_tools(compiler, number)]
        for one in measured:  # xgrammar comes last: what it loads and keeps would be in the way of the rest
            print(one.line)
            if not args.without_xgrammar:
                measure_xgrammar(vocabulary, one.dialect, one.tools, one.ids)
        measure_text(compiler)
        measure_forced(compiler)


def one_by_one(args: argparse.Namespace) -> None:
    """Each vocabulary in a process of its own: a server has one."""
    more = [*(["--without-xgrammar"] if args.without_xgrammar else []), *(f"--only={number}" for number in args.only or ())]
    for path in args.vocabulary:
        subprocess.run([sys.executable, __file__, "--vocabulary", str(path), *more], check=True)


@dataclass(frozen=True)
class Measured:
    """What was asked of a dialect's fence, and the line that says what it cost."""

    dialect: str
    tools: tuple[FunctionTool, ...]
    ids: list[int]
    line: str


def measure_tools(compiler: FenceCompiler, number: int) -> Iterator[Measured]:
    tools = tuple(tool(index) for index in range(number))
    for name in ("dsml-v4", "glm-4.7", "chatml-qwen3"):
        firsts, agains, walls = [], [], []
        for _ in range(5):
            dialect = dialect_for(None, compiler.vocabulary, name)  # a new one remembers no grammar
            fresh = FenceCompiler(compiler.vocabulary)
            fresh._tokenizers = compiler._tokenizers  # the model's own, there before any request
            build_fence(FenceRequest(dialect.fence_grammar((tool(0),)), tool_choice=ToolChoiceRequired()), fresh)
            gc.collect()
            started, wall = time.thread_time(), time.perf_counter()
            begin(dialect.fence_grammar(tools), fresh, ToolChoiceRequired()).allowed()
            firsts.append(milliseconds(started))
            walls.append((time.perf_counter() - wall) * 1e3)
            started = time.thread_time()
            begin(dialect.fence_grammar(tools), fresh, ToolChoiceRequired()).allowed()
            agains.append(milliseconds(started))
        ids = answer(dialect, tools, calls=12)
        grammar = dialect.fence_grammar(tools)
        rounds = [per_token(lambda grammar=grammar: begin(grammar, compiler, ToolChoiceRequired()), ids) for _ in range(3)]
        best = min(rounds, key=statistics.median)
        line = (
            f"  {name:13} {number:3} tools: first mask {min(firsts):6.1f} ms CPU (median {statistics.median(firsts):.1f}, wall "
            f"{min(walls):.1f}; again {min(agains):.1f}); "
            f"mask + advance over {len(ids)} tokens: {figures(best)}"
        )
        yield Measured(name, tools, ids, line)


def measure_xgrammar(vocabulary: Vocabulary, name: str, tools: Sequence[FunctionTool], ids: list[int]) -> None:
    try:
        import xgrammar
    except ImportError:
        print("    xgrammar: not installed, not measured")
        return
    model = {"dsml-v4": "deepseek_v4", "glm-4.7": "glm_4_7", "chatml-qwen3": "qwen_3"}[name]
    pieces = [vocabulary.token_bytes(token_id) for token_id in range(vocabulary.size)]
    info = xgrammar.TokenizerInfo(
        pieces, xgrammar.VocabType.RAW, vocab_size=vocabulary.size, stop_token_ids=list(vocabulary.stop_ids)
    )
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    described = [{"type": "function", "function": {"name": one.name, "parameters": plain(one.parameters)}} for one in tools]
    started = time.thread_time()
    tag = xgrammar.get_model_structural_tag(model, tools=described, tool_choice="required", reasoning="disabled", any_order=True)
    compiled = compiler.compile_structural_tag(tag)
    matcher = xgrammar.GrammarMatcher(compiled)
    mask = xgrammar.allocate_token_bitmask(1, vocabulary.size)
    matcher.fill_next_token_bitmask(mask)
    first = milliseconds(started)
    spent = []
    for position, token_id in enumerate(ids):
        started = time.thread_time()
        accepted = matcher.accept_token(token_id)
        if accepted:
            matcher.fill_next_token_bitmask(mask)
        spent.append((time.thread_time() - started) * 1e6)
        if not accepted:
            before = vocabulary.decode(ids[max(0, position - 8) : position])
            print(f"    xgrammar: refuses {vocabulary.decode([token_id])!r} after {before!r} (token {position})")
            break
    print(f"    xgrammar {model:11}      first mask {first:6.1f} ms; mask + advance over {len(spent)} tokens: {figures(spent)}")


def measure_text(compiler: FenceCompiler) -> None:
    dialect = dialect_for(None, compiler.vocabulary, "dsml-v4")
    grammar = dialect.fence_grammar((tool(0), tool(1), tool(2)))
    ids = compiler.vocabulary.encode_text(PROSE)
    for label, guard in (("free text", None), ("free text, guarded", GuardSettings())):
        spent = []
        for _ in range(20):
            fence = begin(grammar, compiler, ToolChoiceAuto(), guard)
            fence.allowed()
            started = time.thread_time()
            for token_id in ids:
                fence.advance(token_id)
                fence.allowed()
            spent.append((time.thread_time() - started) * 1e6 / len(ids))
        each = f"{min(spent):.2f} µs a token of {len(ids)} (median of 20 rounds: {np.median(spent):.2f})"
        print(f"  {label:20} mask + advance: {each}")


def measure_forced(compiler: FenceCompiler) -> None:
    three = from_python(
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": "string"}},
            "required": ["city", "days", "unit"],
        }
    )
    assert isinstance(three, JsonObject)
    tools = (FunctionTool("get_weather", parameters=three), FunctionTool("get_time"), FunctionTool("list_rooms"))
    arguments = JsonObject((("city", "New York"), ("days", from_python(3)), ("unit", "celsius")))
    message = Message(Role.ASSISTANT, (ToolCall("c", "get_weather", arguments),))
    print("  forced tokens of one call with 3 parameters, of 3 tools:")
    for name in DEFINITIONS:
        dialect = dialect_for(None, compiler.vocabulary, name)
        ids = encoded(compiler.vocabulary, "".join(segment.text for segment in dialect.render_calls(message)))
        for label, choice in (("required", ToolChoiceRequired()), ("auto", ToolChoiceAuto())):
            fence = begin(dialect.fence_grammar(tools), compiler, choice)
            forced = position = 0
            while position < len(ids):
                run = tuple(fence.forced())
                if run and run == tuple(ids[position : position + len(run)]):
                    forced += len(run)
                else:
                    assert not run, f"{name}: forced {run}, written {ids[position : position + len(run)]}"
                    run = (ids[position],)
                for token_id in run:
                    fence.advance(token_id)
                position += len(run)
            print(f"    {name:15} {label:8} {forced:3} of {len(ids):3} tokens = {forced / len(ids):4.0%}")


# ---- the work --------------------------------------------------------------------------------------------------------------


def tool(index: int) -> FunctionTool:
    """One of many: eight parameters, two of them required."""
    names = [f"{('city', 'days', 'names', 'options')[n % 4]}_{n if n < 4 else index + 10}" for n in range(8)]
    properties = {name: SCHEMAS[n % 4] for n, name in enumerate(names)}
    properties[names[1]] = {"type": "integer", "minimum": 1, "maximum": 14 + index}
    schema = from_python({"type": "object", "properties": properties, "required": list(properties)[:2]})
    assert isinstance(schema, JsonObject)
    return FunctionTool(f"{('get', 'set', 'list', 'delete')[index % 4]}_thing_{index}", parameters=schema)


def answer(dialect: Any, tools: Sequence[FunctionTool], *, calls: int) -> list[int]:
    """The ids of an answer of several calls, long and short values in it, as the dialect writes it."""
    made = []
    for index in range(calls):
        called = tools[(index * 37) % len(tools)]
        properties = called.parameters.get("properties") if called.parameters is not None else None
        assert isinstance(properties, JsonObject)
        pairs = []
        for number, name in enumerate(properties.keys()[: 2 + index % 7]):
            value = VALUES[number % 4]
            pairs.append((name, from_python(PROSE if number == 0 and index == 3 else value)))
        made.append(ToolCall(f"call_{index}", called.name, JsonObject(tuple(pairs))))
    segments = dialect.render_calls(Message(Role.ASSISTANT, tuple(made)))
    return encoded(dialect._vocabulary, "".join(segment.text for segment in segments))


def encoded(vocabulary: Vocabulary, text: str) -> list[int]:
    return vocabulary.encode_with_markers(text)


def begin(grammar: Any, compiler: FenceCompiler, choice: ToolChoice, guard: GuardSettings | None = None) -> TokenFence:
    fence = build_fence(FenceRequest(grammar, tool_choice=choice, may_open_reasoning=False), compiler, guard)
    assert fence is not None
    return fence


def per_token(make: Callable[[], TokenFence], ids: Sequence[int]) -> list[float]:
    """Microseconds of `advance` and `allowed` for each id: time of this thread, so that neighbours do not count."""
    fence = make()
    fence.allowed()
    gc.collect()
    gc.disable()
    spent = []
    for token_id in ids:
        started = time.thread_time()
        fence.advance(token_id)
        fence.allowed()
        spent.append((time.thread_time() - started) * 1e6)
    gc.enable()
    return spent


def figures(spent: list[float]) -> str:
    ordered = sorted(spent)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"median {statistics.median(ordered):6.1f}  mean {np.mean(ordered):6.1f}  p99 {p99:7.1f}  max {ordered[-1]:7.1f} µs"


def milliseconds(started: float) -> float:
    return (time.thread_time() - started) * 1e3


def plain(value: JsonObject | None) -> Any:
    from zllm_ref.canonical.json_value import to_python

    return to_python(value) if value is not None else {"type": "object", "properties": {}}


if __name__ == "__main__":
    main()
