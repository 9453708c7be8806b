"""The guard sees loops and restarts, and leaves alone what only looks like them."""

from __future__ import annotations

import base64
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.request import FunctionTool, ToolChoiceRequired
from zllm_ref.dialect import dialect_for
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.event import CallFinished
from zllm_ref.fence import (
    FenceCompiler,
    FenceRequest,
    GenerationGuard,
    GuardSettings,
    Phase,
    TokenFence,
    Verdict,
    Watch,
    build_fence,
)
from zllm_ref.fence.grammar import CallGrammar, JsonBySchema, Literal, Marker, RawText, ReasoningGrammar, Sequence, ToolGrammar
from zllm_ref.fence.mask import ids_of, is_allowed
from zllm_ref.fence.piece_kinds import piece_kinds
from zllm_ref.tokenizer import Detokenizer, byte_vocabulary

SETTINGS = GuardSettings()
_PIECES = re.compile(r" ?[A-Za-z]+| ?[0-9]{1,3}|\n+| ?[^\sA-Za-z0-9]{1,4}|[ \t]+")


def pieces_of(text: str) -> list[str]:
    """Words with their blank, as a large vocabulary would cut them; long unbroken strings in threes."""
    return [part for piece in _PIECES.findall(text) for part in (re.findall(".{1,4}", piece) if len(piece) > 14 else [piece])]


class Watched:
    """A guard over a vocabulary that is made while the text is read."""

    def __init__(self, settings: GuardSettings = SETTINGS, phase: Phase = Phase.REASONING, seed: str = "") -> None:
        self.ids: dict[str, int] = {}
        pieces = pieces_of(seed)
        for piece in pieces:
            self.ids.setdefault(piece, len(self.ids))
        self.guard = GenerationGuard(settings, piece_kinds([piece.encode() for piece in self.ids]), phase)
        self.phase = phase

    def say(self, text: str, *, is_free: bool = True) -> list[Verdict]:
        verdicts = []
        for piece in pieces_of(text):
            self.guard.advance(self.ids[piece], self.phase, is_free=is_free, may_end=False)
            verdicts.append(self.guard.verdict)
        return verdicts


def verdicts(text: str, phase: Phase = Phase.REASONING, settings: GuardSettings = SETTINGS) -> list[Verdict]:
    return Watched(settings, phase, text).say(text)


def is_caught(text: str, phase: Phase = Phase.REASONING, settings: GuardSettings = SETTINGS) -> bool:
    return any(verdict is not Verdict.GO_ON for verdict in verdicts(text, phase, settings))


OPENING = "Wait, let me think about the question again from the very beginning and check each step. "
OTHER = (
    "The first train leaves at nine in the morning and needs about four hours to the coast, where nobody waits for it today.\n",
    "If we take the sum of both sides the left one grows faster than the right, which cannot be what the author had in mind.\n",
    "Perhaps the answer lies in the table above, though its last column was never explained by anyone who wrote about it.\n",
    "So far we have found three candidates, two of which are even, and the last one does not divide the number we look for.\n",
)
RESTARTS = {
    "a thought begun three times": "".join(OPENING + other for other in OTHER[:3]),
    "with two passages between": "".join(OPENING + OTHER[0] + OTHER[1] + OTHER[2] for _ in range(3)),
    "each time at another length": OPENING + OTHER[0] + OPENING + OTHER[1] + OTHER[2] + OTHER[3] + OPENING + OTHER[0],
    "after a long beginning": OTHER[3] + OTHER[2] + "".join(OPENING + other for other in OTHER[:3]),
    "another opening": "".join(
        "Okay, so the user wants me to write a function that returns all prime numbers, " + other for other in OTHER[:3]
    ),
    "in a paragraph of its own": "".join("\n\n" + OPENING + other for other in OTHER[:3]),
    "with a number that counts": "".join(
        f"Hmm, the equation that we have to solve here for the unknown still says that {n} is left. {OTHER[n]}" for n in range(3)
    ),
    "four times": "".join(OPENING + other for other in OTHER),
}
NO_RESTARTS = {
    "begun twice": "".join(OPENING + other for other in OTHER[:2]),
    "a shorter opening": "".join("Wait, let me think again. " + other for other in OTHER[:3]),
    "the same words, but not at the beginning": "".join(f"{n} more. " + OPENING + other for n, other in enumerate(OTHER)),
    "an ordered list": "".join(
        f"{n}. The value of the field is read from the file and then written to the log again.\n" for n in range(9)
    ),
    "bullet points that follow each other": "- The function takes a list of numbers and returns the sum of all the even ones.\n"
    * 3,
    "a table of words": "| the name of the city | the name of the country | the number of people |\n" * 3,
    "statements in a row": "".join(
        f"INSERT INTO users (id, name, city, street, country, mail) VALUES ({n}, 2, 3, 4, 5, 6);\n" for n in range(8)
    ),
    "code in a block": "```\n"
    + "".join(f"def test_that_the_value_is_what_it_should_be_in_case_{n}(self):\n{OTHER[n]}" for n in range(4))
    + "```\n",
    "log lines": "".join(
        f"2026-11-29 12:00:0{n} INFO server: 127.0.0.1 - GET /v1/models 200 in {n} ms\n{OTHER[n]}" for n in range(4)
    ),
    "imports": "".join(f"from a.b.c import d, e, f, g, h, i, j, k\n{other}" for other in OTHER),
    "a dialogue": "".join(f'"No," she said.\n"Yes," he said.\n{other}' for other in OTHER),
    "numbers": "".join(f"1 2 3 4 5 6 7 8 9 10 11 12 13\n{other}" for other in OTHER),
    "equations": "".join(f"x + y = z, a * b = c, f(x) = g(y), h = i\n{other}" for other in OTHER),
    "different openings": "".join(
        f"{word}, let me think about the question again from here on. {OTHER[n]}" for n, word in enumerate(("So", "Now", "Well"))
    ),
    "headings": "".join(f"## Part {n}\n{other}" for n, other in enumerate(OTHER)),
}


@pytest.mark.parametrize("text", RESTARTS.values(), ids=RESTARTS.keys())
def test_a_restart_closes_the_reasoning(text: str) -> None:
    seen = verdicts(text)

    assert Verdict.CLOSE_REASONING in seen
    assert seen.index(Verdict.CLOSE_REASONING) > len(seen) // 3, "not before the third time"


@pytest.mark.parametrize("text", NO_RESTARTS.values(), ids=NO_RESTARTS.keys())
def test_what_only_looks_like_a_restart_goes_on(text: str) -> None:
    assert not is_caught(text)


def test_a_refrain_in_the_answer_is_no_restart_unless_asked_for() -> None:
    text = RESTARTS["a thought begun three times"]

    assert not is_caught(text, Phase.TEXT)
    assert is_caught(text, Phase.TEXT, GuardSettings(restart_in_text=True))
    assert not is_caught(text, settings=GuardSettings(watch=Watch.REPETITION | Watch.BUDGETS))


LOOPS = {
    "one word": " the" * 60,
    "two words": " and then" * 60,
    "a sentence": "I will check the value of the result once more. " * 12,
    "a paragraph": (OTHER[0] + OTHER[1]) * 6,
    "a pattern that repeats itself inside": "one two two one three " * 30,
    "a line": "    return the_value_of(the_thing)\n" * 20,
}
NO_LOOPS = {
    "text": "".join(OTHER) * 2,
    "a markdown table": "| name | age |\n|---|---|\n" + "".join(f"| user {n} | {n * 3} |\n" for n in range(200)),
    "rows of the same table cells": "| yes | no | yes |\n" * 6,
    "a table of numbers": "| 0 | 0 | 0 | 0 |\n" * 40,
    "base64 of zeros": "A" * 1500,
    "base64 of blanks": "ICAgICAg" * 180,
    "base64 of a picture": base64.b64encode(random.Random(1).randbytes(3000)).decode(),
    "deep indentation": "".join("\n" + "    " * n + "x = 1" for n in range(40)) + "\n" * 8 + " " * 400,
    "rulers": ("-" * 400 + "\n" + "=" * 400 + "\n") * 2 + "* * * * * * * * * * * *\n" * 10,
    "an array of zeros": "[" + "0, " * 300 + "0]",
    "hexadecimal": "00 " * 300,
    "a counting list": "".join(f"{n}. item number {n}\n" for n in range(150)),
    "braces": "}\n" * 60,
    "dots": "." * 600,
    "a short chorus": "La la la, the sun is in the sky. " * 3,
    "csv with empty cells": ";;;;;;;;;;\n" * 60,
}


@pytest.mark.parametrize("phase", [Phase.TEXT, Phase.REASONING])
@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS.keys())
def test_a_loop_is_seen(text: str, phase: Phase) -> None:
    assert is_caught(text, phase)


@pytest.mark.parametrize("phase", [Phase.TEXT, Phase.REASONING])
@pytest.mark.parametrize("text", NO_LOOPS.values(), ids=NO_LOOPS.keys())
def test_what_repeats_for_good_reason_goes_on(text: str, phase: Phase) -> None:
    assert not is_caught(text, phase)


def test_even_rulers_come_to_an_end() -> None:
    assert is_caught("----" * 1500, Phase.TEXT)
    assert is_caught("0, " * 1500, Phase.TEXT)


def test_a_loop_in_a_script_without_blanks_is_seen() -> None:
    kinds = piece_kinds(["我们".encode(), "再来".encode(), "看一遍".encode(), "。".encode()])
    guard = GenerationGuard(SETTINGS, kinds, Phase.TEXT)

    length = 0
    while guard.verdict is Verdict.GO_ON and length < 200:
        guard.advance(length % 4, Phase.TEXT, is_free=True, may_end=False)
        length += 1

    assert guard.verdict is Verdict.EXCLUDE
    assert length == SETTINGS.repeated_words


def test_the_token_that_would_go_on_with_the_loop_is_excluded() -> None:
    text = "I will check it once more. " * 20
    watched = Watched(SETTINGS, Phase.TEXT, text)
    left = pieces_of(text)
    while watched.guard.verdict is Verdict.GO_ON:
        watched.guard.advance(watched.ids[left.pop(0)], Phase.TEXT, is_free=True, may_end=False)

    assert watched.guard.verdict is Verdict.EXCLUDE
    assert watched.guard.excluded == watched.ids[left[0]]


def test_structure_is_never_counted() -> None:
    text = "I will check it once more. " * 40
    watched = Watched(SETTINGS, Phase.REGION, text)

    assert set(watched.say(text, is_free=False)) == {Verdict.GO_ON}
    assert Verdict.CLOSE_VALUE in watched.say(text, is_free=True)


@given(st.lists(st.integers(0, 5), max_size=300), st.data())
def test_rollback_of_the_guard_is_a_fresh_replay(ids: list[int], data: st.DataObject) -> None:
    settings = GuardSettings(copies=2, repeated_words=8, repeated_token=6, repeated_quiet=12, restart_opening=3, restart_words=1,
                             restart_between=2)  # fmt: skip
    kinds = piece_kinds([b" one", b" two", b"3", b"\n", b"```", " 四".encode()])
    ids = ids * 2

    def fresh(length: int) -> GenerationGuard:
        guard = GenerationGuard(settings, kinds, Phase.REASONING)
        for token_id in ids[:length]:
            guard.advance(token_id, Phase.REASONING, is_free=True, may_end=False)
        return guard

    guard, at = fresh(0), 0
    for _ in range(4):
        step = data.draw(st.integers(-at, len(ids) - at))
        for token_id in ids[at : at + max(step, 0)]:
            guard.advance(token_id, Phase.REASONING, is_free=True, may_end=False)
        guard.rollback(max(-step, 0))
        at += step
        guard = guard.clone()
        again = fresh(at)
        assert (guard.verdict, guard.excluded, guard.explain()) == (again.verdict, again.excluded, again.explain())
        assert guard._openings == again._openings


# ---- merged with the phases ----------------------------------------------------------------------------------------------

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
