"""Grammars of free-form tools in every dialect: what a walk over the masks ends with, and the shortest text of a grammar."""

from __future__ import annotations

import random

import pytest

from tests.fence.vocabularies import text_mode_vocabulary, trained_vocabulary
from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.request import CustomTool, ToolChoiceNone, ToolChoiceRequired
from zllm_ref.dialect import dialect_for
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import CallFinished
from zllm_ref.dialect.tool_parser import ToolParser
from zllm_ref.fence import FenceCompiler, FencePolicy, FenceRequest, build_fence
from zllm_ref.fence.compile import UnfenceableGrammar
from zllm_ref.fence.mask import ids_of
from zllm_ref.tokenizer import Vocabulary, byte_vocabulary
from zllm_ref.tokenizer.detokenizer import Detokenizer

VOCABULARIES = {"bytes": byte_vocabulary(), "trained": trained_vocabulary(), "text mode": text_mode_vocabulary()}
COMPILERS = {name: FenceCompiler(vocabulary) for name, vocabulary in VOCABULARIES.items()}
UNESCAPED = [name for name in DEFINITIONS if not name.startswith("chatml")]
SUM = ("lark", 'start: sum\nsum: NUMBER | "(" sum " + " sum ")"\nNUMBER: /[0-9]{1,3}/\n')
EDIT = ("lark", 'start: "begin\\n" line+ "end"\nline: ("+" | "-") /[a-z<>"\\/]{0,6}/ "\\n"\n')
DATE = ("regex", '[0-9]{4}-[0-9]{2}(-[0-9]{2})?( "(am|pm)")?')
LINES = ("regex", "([a-cé]{1,4}\\n){1,3}x")
PATCH = (
    "lark",
    "start: begin hunk+ end\n"
    'begin: "*** Begin Patch" LF\n'
    'end: "*** End Patch" LF?\n'
    "hunk: add | delete | update\n"
    'add: "*** Add File: " name LF line+\n'
    'delete: "*** Delete File: " name LF\n'
    'update: "*** Update File: " name LF change?\n'
    "name: /(.+)/\n"
    'line: "+" /(.*)/ LF -> line\n'
    "change: (context | part)+\n"
    'context: ("@@" | "@@ " /(.+)/) LF\n'
    'part: ("+" | "-" | " ") /(.*)/ LF\n'
    "%import common.LF\n",
)


def walk(vocabulary: Vocabulary, compiler: FenceCompiler, name: str, tool: CustomTool, seed: int) -> str | None:
    """The input of one call, its tokens drawn from the masks; None: it was still going on after 200 tokens."""
    dialect = dialect_for(None, vocabulary, name)
    request = FenceRequest(
        dialect.fence_grammar((tool,)), (tool,), ToolChoiceRequired(), parallel_tool_calls=False, may_open_reasoning=False,
        policy=FencePolicy.STRICT,
    )  # fmt: skip
    fence = build_fence(request, compiler)
    assert fence is not None
    assert fence.problems == ()
    stops = set(fence.plan.stop_ids)
    chance = random.Random(seed)
    ids: list[int] = []
    while not ids or ids[-1] not in stops:
        mask = fence.allowed()
        assert mask is not None
        token_id = chance.choice(ids_of(mask))
        fence.advance(token_id)
        ids.append(token_id)
        if len(ids) == 400:
            return None
    detokenizer = Detokenizer(vocabulary)
    parser = ToolParser(DEFINITIONS[name], vocabulary, (tool,))
    events = parser.push([piece for token_id in ids[:-1] for piece in detokenizer.push(token_id)])
    events += parser.push(detokenizer.finish())
    events += parser.finish()
    finished = [event for event in events if isinstance(event, CallFinished)]
    assert len(finished) == 1, events
    return finished[0].arguments


@pytest.mark.parametrize("grammar", [SUM, EDIT, DATE, LINES], ids=["sum", "edit", "date", "lines"])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", UNESCAPED)
def test_every_finished_input_satisfies_its_grammar_where_values_are_written_as_they_are(
    name: str, vocabulary: str, grammar: tuple[str, str]
) -> None:
    compiler, tool = COMPILERS[vocabulary], CustomTool("run", grammar=grammar)

    inputs = [walk(VOCABULARIES[vocabulary], compiler, name, tool, seed) for seed in range(8)]

    finished = [text for text in inputs if text is not None]
    assert len(finished) >= 3
    assert [text for text in finished if not compiler.reads(*grammar, text)] == []


@pytest.mark.parametrize("grammar", [DATE, LINES], ids=["date", "lines"])
@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name.startswith("chatml")])
def test_every_finished_input_satisfies_its_expression_inside_a_json_string(name: str, grammar: tuple[str, str]) -> None:
    compiler, tool = COMPILERS["bytes"], CustomTool("run", grammar=grammar)

    inputs = [walk(VOCABULARIES["bytes"], compiler, name, tool, seed) for seed in range(8)]

    finished = [text for text in inputs if text is not None]
    assert len(finished) >= 3
    assert [text for text in finished if not compiler.reads(*grammar, text)] == []


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        (SUM, "0"),
        (DATE, "0000-00"),
        (LINES, "a\nx"),
        (("regex", "a(b|c)+d{3}"), "abddd"),
        (("regex", ""), ""),
        (("lark", 'start: "add " /[0-9]+/'), "add 0"),
    ],
    ids=["sum", "date", "lines", "counted", "nothing", "keyword"],
)
def test_a_short_text_of_a_grammar_is_found_by_its_masks(vocabulary: str, grammar: tuple[str, str], expected: str) -> None:
    assert COMPILERS[vocabulary].shortest_text(*grammar) == expected
    assert COMPILERS[vocabulary].reads(*grammar, expected)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_short_patch_is_found(vocabulary: str) -> None:
    found = COMPILERS[vocabulary].shortest_text(*PATCH)

    assert found is not None
    assert len(found) < 60
    assert COMPILERS[vocabulary].reads(*PATCH, found)


def test_where_no_text_is_short_enough_none_is_found() -> None:
    assert COMPILERS["bytes"].shortest_text("regex", "([ab][cd]){400}") is None


def test_a_dot_of_an_expression_is_no_line_break_wherever_it_is_held() -> None:
    assert not COMPILERS["bytes"].reads("regex", "a.b", "a\nb")
    assert COMPILERS["bytes"].reads("regex", "a.b", "axb")


MALFORMED = [
    ("lark", "start: ("),
    ("lark", "start: x"),
    ("lark", "start: start"),
    ("lark", ""),
    ("regex", "a("),
    ("regex", "(?=a)b"),
]


@pytest.mark.parametrize("grammar", MALFORMED)
@pytest.mark.parametrize("name", ["chatml-hermes", "dsml-v4", "glm-4.7", "qwen3-coder"])
def test_a_grammar_that_nobody_can_read_is_refused_by_its_path(name: str, grammar: tuple[str, str]) -> None:
    tools = (CustomTool("good", grammar=SUM), CustomTool("bad", grammar=grammar, path="tools[7].format.definition"))
    ready = dialect_for(None, VOCABULARIES["bytes"], name).fence_grammar(tools)

    for choice in (ToolChoiceRequired(), ToolChoiceNone()):
        with pytest.raises(ApiError, match=r"got .*allowed") as refused:
            build_fence(FenceRequest(ready, tools, choice), COMPILERS["bytes"])
        assert refused.value.param == "tools[7].format.definition"
    with pytest.raises(UnfenceableGrammar):
        COMPILERS["bytes"].reads(*grammar, "x")
