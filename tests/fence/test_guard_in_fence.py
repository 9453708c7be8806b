"""Guard and phases merged: what the guard wants is what may be said, and there is always a way to the end."""

from __future__ import annotations

import pytest

from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.request import FunctionTool, ToolChoiceRequired
from zllm_ref.dialect import dialect_for
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import CallFinished
from zllm_ref.fence import (
    FenceCompiler,
    FenceRequest,
    GuardSettings,
    Phase,
    TokenFence,
    Verdict,
    build_fence,
)
from zllm_ref.fence.grammar import CallGrammar, JsonBySchema, Literal, Marker, RawText, ReasoningGrammar, Sequence, ToolGrammar
from zllm_ref.fence.mask import ids_of, is_allowed
from zllm_ref.tokenizer import Detokenizer, byte_vocabulary

VOCABULARY = byte_vocabulary()
COMPILER = FenceCompiler(VOCABULARY)
THINK = ReasoningGrammar(Marker("</think>"))
CLOSER = (Literal("</"), Marker("｜DSML｜"), Literal(">"))


def grammar() -> ToolGrammar:
    strings = JsonBySchema(JsonObject((("type", "array"), ("items", JsonObject((("type", "string"),))))))
    calls = (
        CallGrammar("raw", Sequence((Literal("raw("), RawText(CLOSER)))),
        CallGrammar("json", Sequence((Literal("json("), strings, Literal(")")))),
    )
    return ToolGrammar("two", Marker("<tool_call>"), calls, between=Marker("<tool_call>"), reasoning=THINK)


def fence_of(guard: GuardSettings, **settings: object) -> TokenFence:
    request = FenceRequest(grammar(), tool_choice=ToolChoiceRequired(), **settings)  # type: ignore[arg-type]
    fence = build_fence(request, COMPILER, guard)
    assert fence is not None
    return fence


def say(fence: TokenFence, text: str) -> None:
    for token_id in VOCABULARY.encode_with_markers(text):
        fence.advance(token_id)


def forced(fence: TokenFence) -> str:
    return VOCABULARY.decode(list(fence.forced()))


def test_the_reasoning_budget_closes_the_reasoning_with_its_end_token() -> None:
    fence = fence_of(GuardSettings(reasoning_budget=6), starts_in_reasoning=True)

    say(fence, "12345")
    assert forced(fence) == ""
    say(fence, "6")

    assert forced(fence) == "</think>"
    assert ids_of(fence.allowed()) == [VOCABULARY.marker_id("</think>")]  # type: ignore[arg-type]
    fence.advance(fence.forced()[0])
    assert fence.phase is Phase.REGION


def test_a_spelled_end_of_reasoning_comes_as_a_whole_and_once() -> None:
    vocabulary = byte_vocabulary(("<|im_end|>",))
    fence = build_fence(
        FenceRequest(reasoning=THINK, starts_in_reasoning=True), FenceCompiler(vocabulary), GuardSettings(reasoning_budget=3)
    )
    assert fence is not None
    for byte in b"abc":
        fence.advance(byte)

    assert bytes(fence.forced()) == b"</think>"
    for byte in b"</thi":
        fence.advance(byte)
    assert bytes(fence.forced()) == b"nk>"
    for byte in b"nk>":
        fence.advance(byte)
    assert fence.phase is Phase.TEXT
    assert fence.forced() == ()


def test_the_reasoning_is_not_closed_inside_a_character() -> None:
    fence = fence_of(GuardSettings(reasoning_budget=2), starts_in_reasoning=True)

    for byte in b"ab" + "東".encode()[:2]:
        if fence.forced():
            break
        fence.advance(byte)

    assert forced(fence) == "</think>"
    cut = fence_of(GuardSettings(reasoning_budget=2), starts_in_reasoning=True)
    for byte in "a東".encode()[:2]:
        cut.advance(byte)
    assert forced(cut) == ""


def test_the_value_budget_closes_an_unescaped_value() -> None:
    fence = fence_of(GuardSettings(value_budget=4))

    say(fence, "<tool_call>raw(abcd")

    assert forced(fence) == "</｜DSML｜"
    say(fence, "</｜DSML｜>")
    assert fence.explain().startswith("phase after")


def test_a_rollback_brings_back_what_was_being_forced() -> None:
    fence = fence_of(GuardSettings(value_budget=4))
    say(fence, "<tool_call>raw(abcd")

    for token_id in tuple(fence.forced())[:2]:
        fence.advance(token_id)
    fence.rollback(2)

    assert forced(fence) == "</｜DSML｜"


def test_the_value_budget_closes_a_json_string() -> None:
    fence = fence_of(GuardSettings(value_budget=3))

    say(fence, '<tool_call>json(["abc')

    assert forced(fence) == '"'


def test_the_call_budget_closes_value_and_levels_around_it() -> None:
    fence = fence_of(GuardSettings(call_budget=9))
    say(fence, '<tool_call>json(["abc')

    written = ""
    while not fence.explain().startswith("phase after"):
        written += forced(fence)
        say(fence, forced(fence))

    assert written == '"])'


@pytest.mark.parametrize("budget", [{"value_budget": 6}, {"call_budget": 40}], ids=str)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_number_that_never_ends_is_closed_in_every_dialect(name: str, budget: dict[str, int]) -> None:
    """Found by a model that said digits for ever: little else may follow a digit, so it was taken for structure."""
    schema = from_python({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "number"}},
                          "required": ["a", "b"]})  # fmt: skip
    assert isinstance(schema, JsonObject)
    dialect = dialect_for(None, VOCABULARY, name)
    tools = (FunctionTool("f", parameters=schema),)
    request = FenceRequest(dialect.fence_grammar(tools), tools, ToolChoiceRequired(), max_calls=1, may_open_reasoning=False)
    fence = build_fence(request, COMPILER, GuardSettings(**budget))  # type: ignore[arg-type]
    assert fence is not None

    said: list[int] = []
    while fence.phase is not Phase.END and len(said) < 2000:
        allowed = ids_of(fence.allowed())  # type: ignore[arg-type]
        digits = [token_id for token_id in allowed if VOCABULARY.token_bytes(token_id).isdigit()]
        said.append((tuple(fence.forced())[:1] or digits[-1:] or allowed[:1])[0])
        fence.advance(said[-1])

    assert fence.phase is Phase.END
    assert len(said) < 250
    parser = dialect.parser(tools)
    detokenizer = Detokenizer(VOCABULARY)
    events = parser.push([piece for token_id in said[:-1] for piece in detokenizer.push(token_id)])
    assert [type(event) for event in (*events, *parser.finish())][-1] is CallFinished


def test_a_loop_inside_a_value_closes_it() -> None:
    fence = fence_of(GuardSettings(repeated_words=24))
    say(fence, "<tool_call>raw(")

    for token_id in VOCABULARY.encode_text("äöü " * 12):
        if fence.forced():
            break
        fence.advance(token_id)

    assert forced(fence) == "</｜DSML｜"


def test_a_loop_in_text_excludes_a_token_and_at_last_ends_the_answer() -> None:
    fence = build_fence(FenceRequest(), COMPILER, GuardSettings(repeated_words=24, strikes=2))
    assert fence is not None
    excluded = 0
    for _ in range(200):
        if fence.verdict is Verdict.STOP:
            break
        for wanted in VOCABULARY.encode_text("äöü "):
            if not is_allowed(fence.allowed(), wanted):
                excluded += 1
                fence.advance(ord("x"))
                break
            fence.advance(wanted)
            if fence.verdict is Verdict.STOP:
                break

    assert excluded == 2
    assert fence.verdict is Verdict.STOP
    assert fence.forced() == VOCABULARY.stop_ids[:1]
    fence.advance(fence.forced()[0])
    assert fence.phase is Phase.END
    assert fence.verdict is Verdict.STOP


def test_verified_rows_behind_a_loop_are_cut() -> None:
    fence = build_fence(FenceRequest(), COMPILER, GuardSettings(repeated_words=24))
    assert fence is not None
    ids = VOCABULARY.encode_text("äöü " * 12)

    kept = fence.legal_prefix(ids)

    assert 24 <= kept < len(ids)
    for token_id in ids[:kept]:
        fence.advance(token_id)
    assert not is_allowed(fence.allowed(), ids[kept])


def test_the_guard_never_leaves_nothing_to_say() -> None:
    fence = fence_of(GuardSettings(value_budget=1, call_budget=1, reasoning_budget=1, repeated_quiet=2, copies=1))

    for _ in range(40):
        allowed = ids_of(fence.allowed())  # type: ignore[arg-type]
        assert allowed
        fence.advance((fence.forced() or allowed)[0])
        if fence.phase is Phase.END:
            break
    assert fence.phase is Phase.END
