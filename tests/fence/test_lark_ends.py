"""A client's Lark grammar whose rules cannot all end is refused: its masks would lead into a text without an end."""

from __future__ import annotations

import itertools

import pytest

from tests.fence.test_custom_grammars import EDIT, PATCH, SUM
from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.request import CustomTool, ToolChoiceAuto, ToolChoiceNone
from zllm_ref.dialect import dialect_for
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.fence import FenceCompiler, FenceRequest, build_fence
from zllm_ref.fence.lark_ends import endless_rule, terminal_grammars
from zllm_ref.tokenizer import byte_vocabulary

VOCABULARY = byte_vocabulary()
COMPILER = FenceCompiler(VOCABULARY)

ENDLESS = {
    'start: "a" start': "start",
    'start: "a" start | "b" start "c"': "start",
    'start: "a" far\nfar: "b" (near | near+)\nnear: far "c"': "start",
    'start: "x" | "a" far\nfar: "b" far': "far",
    'start: "x" far?\nfar: "b" far': "far",
    'start: "x" far*\nfar: "b" far': "far",
    'start: "x" [far]\n\n// why\nfar: "b" far\n': "far",
    'start: "x" far~0..3\nfar: "b" far': "far",
    'start: "x" ("y" start)+': "start",
    'start: "x" far{2,3}\nfar: /[a-z\\/]+/ far -> again\n': "start",
    '%import common.LF\n%ignore " "\nstart: (LF start)~2': "start",
    'start: line\nline: "(" line ")" # "(" line? ")"\n  | "[" line "]"': "start",
    'start: %json {"type": "string", "enum": ["}{"]} start': "start",
    'start: "x" | _far\n_far: A _far\nA: B & ~C\nB: /[a-z]+/\nC: "q"': "_far",
}
ENDING = [
    *(definition for _, definition in (SUM, EDIT, PATCH)),
    'start: "a" start?',
    'start: "a" start*',
    'start: "a" start~0..2',
    'start: "a" start{0,2}',
    'start: "a" [start]',
    'start: "a" start | "b"',
    'start: "a" start\n\n  | "b"',
    'start: "a" (start | "b")',
    'start: "a" | ',
    'start: "x"\nfar: "b" far',
    'start: "x" ("y" ("z" start) | "|")',
    'start: "x : far" | /y: far/\nfar: "b" far',
    'start: "x" -> far\nfar: "b" far',
    'start: A\nA: "a"+',
]


EMPTY = {
    'start: "x" | "y" BOTH\nBOTH: A & B\nA: /ab+c/\nB: /a[d-z]+/': "BOTH",
    'start: "x" | "y" /[^\\s\\S]/': "/[^\\s\\S]/",
    'start: "x" | "y" (far | "z")\nfar: "z" /[a&&b]/ | "q"': "/[a&&b]/",
    '%ignore " "\n%import common.WORD\nstart: "x" | NO?\nNO: WORD & /[0-9]+/ // none': "NO",
}
FULL = {
    'start: "x" | "y" BOTH?\nBOTH: A & B\nA: /ab+c/\nB: /a[b-z]+/': ["BOTH"],
    'start: /[a-z]*/ | "y" /b/': ["/[a-z]*/", "/b/"],
    'start: "x"\nNO: A & B\nA: "a"\nB: "b"\nfar: NO': [],
    "%import common.WORD\nstart: WORD": ["WORD"],
    'start: SOME\nSOME: %regex {"substring_chars": "a}b"}': ["SOME"],
}


def refusal(definition: str) -> str:
    tool = CustomTool("run", grammar=("lark", definition), path="tools[3].format.definition")
    ready = dialect_for(None, VOCABULARY, "dsml-v4").fence_grammar((tool,))
    try:
        build_fence(FenceRequest(ready, (tool,), ToolChoiceAuto()), COMPILER)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("definition", ENDLESS)
def test_a_rule_without_an_end_is_named_and_the_grammar_refused(definition: str) -> None:
    assert endless_rule(definition) == ENDLESS[definition]
    assert f"no text of rule {ENDLESS[definition]} comes to an end" in refusal(definition)


@pytest.mark.parametrize("definition", ENDING)
def test_a_grammar_whose_rules_end_is_taken(definition: str) -> None:
    assert endless_rule(definition) is None
    assert refusal(definition) == ""


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_the_error_names_the_place_in_the_request_in_every_dialect(name: str) -> None:
    tool = CustomTool("run", grammar=("lark", 'start: "a" start'), path="tools[3].format.definition")
    ready = dialect_for(None, VOCABULARY, name).fence_grammar((tool,))

    for choice in (ToolChoiceAuto(), ToolChoiceNone()):
        with pytest.raises(ApiError, match=r"^tools\[3\]\.format\.definition: got 'start: \"a\" start' .*, allowed") as refused:
            build_fence(FenceRequest(ready, (tool,), choice), COMPILER)
        assert refused.value.param == "tools[3].format.definition"


@pytest.mark.parametrize("definition", EMPTY)
def test_a_terminal_without_a_text_is_named_wherever_it_stands_within_reach(definition: str) -> None:
    assert endless_rule(definition) is None
    assert f"no text satisfies {EMPTY[definition]})" in refusal(definition)


@pytest.mark.parametrize("definition", FULL)
def test_a_grammar_whose_terminals_have_texts_is_taken(definition: str) -> None:
    assert list(terminal_grammars(definition)) == FULL[definition]
    assert refusal(definition) == ""


ATOMS = {  # what it must hold to end, what it mentions
    '"x"': ((), ()),
    "start": (("start",), ("start",)),
    "start+": (("start",), ("start",)),
    "a": (("a",), ("a",)),
    "a?": ((), ("a",)),
    "b": (("b",), ("b",)),
    "b*": ((), ("b",)),
    '("z" b)': (("b",), ("b",)),
    '(a | "y")': ((), ("a",)),
    "[a b]": ((), ("a", "b")),
}


def test_what_is_said_of_a_grammar_is_what_the_definition_says_of_its_texts() -> None:
    """Three rules out of two parts each, in plain sets: a rule ends in n steps if all that it needs ends in fewer."""
    bodies = list(itertools.product(ATOMS, repeat=2))
    verdicts = set()
    for start, a in itertools.product(bodies[::3], repeat=2):
        for b in ('"x"', '"x"'), ('"x"', "b"), ("a", "a"):
            rules = {"start": start, "a": a, "b": b}
            ends: set[str] = set()
            reached = {"start"}
            for _ in rules:
                ends |= {name for name, parts in rules.items() if all(ends.issuperset(ATOMS[part][0]) for part in parts)}
                reached |= {name for one in reached for part in rules[one] for name in ATOMS[part][1]}
            definition = "\n".join(f"{name}: {' '.join(parts)}" for name, parts in rules.items())

            found = endless_rule(definition)

            assert (found is None) == (reached <= ends), definition
            assert found is None or found in reached - ends, definition
            verdicts.add(found)
    assert verdicts == {None, "start", "a", "b"}
