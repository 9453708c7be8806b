"""The guard sees loops and restarts, and leaves alone what only looks like them."""

from __future__ import annotations

import base64
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.fence import (
    GenerationGuard,
    GuardSettings,
    Phase,
    Verdict,
    Watch,
)
from zllm_ref.fence.piece_kinds import piece_kinds

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
