"""A frame of which only the text changes: filled in, it is the JSON that it would have been, and nothing else fits it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.protocols.sse import Form, Frame

PLAIN = Form('{"a":{"text":', '},"b":null}')
NUMBERED = Form('{"n":', ',"z":[]}', "delta", ',"text":')
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(TEXTS, st.integers(0, 10**9))
def test_a_filled_form_is_the_document_with_the_text_in_its_place(text: str, number: int) -> None:
    plain, numbered = PLAIN.fill(text), NUMBERED.fill(text, number)

    assert plain.payload == {"a": {"text": text}, "b": None}
    assert numbered.payload == {"n": number, "text": text, "z": []}
    assert numbered.event == "delta"
    assert len(numbered.data.splitlines()) == 1
    assert PLAIN.fits(plain)
    assert NUMBERED.fits(numbered)
    assert not PLAIN.fits(numbered)
    assert not NUMBERED.fits(replace(numbered, event=None))


@pytest.mark.parametrize(
    "literal", ['""', "null", "1", '{"x":1}', '"x', 'x"', '"x""y"', '"x","y":"z"', '"a\nb"', '"\\q"', ' "x"']
)
def test_what_is_no_text_does_not_fit(literal: str) -> None:
    assert not PLAIN.fits(Frame(PLAIN.head + literal + PLAIN.tail))
    assert not NUMBERED.fits(Frame(f"{NUMBERED.head}7{NUMBERED.before_text}{literal}{NUMBERED.tail}", "delta"))


@pytest.mark.parametrize("number", ["", "-1", "1.5", "007", "x", '"1"', "1 "])
def test_what_is_no_number_does_not_fit(number: str) -> None:
    assert not NUMBERED.fits(Frame(f'{NUMBERED.head}{number}{NUMBERED.before_text}"x"{NUMBERED.tail}', "delta"))


@given(st.integers(0, 60), st.characters(exclude_categories=["Cs"]))
def test_one_wrong_character_outside_the_text_does_not_fit(place: int, character: str) -> None:
    data = NUMBERED.fill("x", 7).data
    place %= len(data)
    wrong = data[:place] + character + data[place + 1 :]

    if NUMBERED.fits(Frame(wrong, "delta")):
        document = json.loads(wrong)
        number, text = document["n"], document["text"]
        assert NUMBERED.fill(text, number).payload == document
        assert (number != 7) + (text != "x") == (wrong != data)
