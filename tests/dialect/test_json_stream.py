"""JSON, read piece by piece and written again at once in canonical spacing."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialect.strategies import json_values
from zllm_ref.canonical.json_value import JsonTextError, JsonValue, dump_json, parse_json
from zllm_ref.dialect.json_stream import JsonStream


def read(pieces: list[str]) -> str:
    stream, written = JsonStream(), ""
    for piece in pieces:
        assert stream.feed(piece) == len(piece)
        written += stream.take()
    assert stream.is_done
    return written


@given(
    json_values,
    st.sampled_from([(",", ":"), (" , ", "\t:\n"), (", ", ": ")]),
    st.booleans(),
    st.sets(st.integers(0, 200), max_size=5),
)
def test_any_spacing_any_escapes_any_cut_give_the_canonical_text(
    value: JsonValue, separators: tuple[str, str], escapes: bool, places: set[int]
) -> None:
    text = dump_json((value,), separators=separators)
    if escapes:
        text = "".join(character if character < "\x7f" else json.dumps(character)[1:-1] for character in text)
    cuts = [0, *sorted(place for place in places if 0 < place < len(text)), len(text)]

    pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]

    assert read(pieces) == dump_json(parse_json(text))
    assert read(list(text)) == dump_json(parse_json(text))


@given(json_values)
def test_what_was_written_is_always_a_prefix_of_the_whole(value: JsonValue) -> None:
    text = dump_json((value,), separators=(" ,", " : "))
    whole = dump_json((value,))
    stream, written = JsonStream(), ""

    for character in text:
        stream.feed(character)
        written += stream.take()
        assert whole.startswith(written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', '{"a": 1, '),
        ('{"a": NaN}', '{"a": '),
        ('{"a": 01}', '{"a": '),
        ('{"a": tru }', '{"a": '),
        ('{"a": "\\ud800"}', '{"a": "'),
        ('{"a": "\\ud800x"}', '{"a": "'),
        ('{"a": "\\udc00"}', '{"a": "'),
        ('{"a": "x\\q"}', '{"a": "x'),
        ('{"a": "x\n"}', '{"a": "x'),
        ('{"a": "\\u12g4"}', '{"a": "'),
        ("{'a': 1}", "{"),
        ('{"a" 1}', '{"a"'),
        ('{"a": 1,}', '{"a": 1, '),
        ("[1,]", "[1, "),
        ("[1 2]", "[1"),
        ("[" * 300, "[" * 200),
    ],
)
def test_what_is_no_json_is_refused_at_its_place_and_what_came_before_was_said(text: str, said: str) -> None:
    for pieces in ([text], list(text)):
        assert refused(pieces) == said


def refused(pieces: list[str]) -> str:
    """What was written before the refusal that must come."""
    stream, written = JsonStream(), ""
    for piece in pieces:
        try:
            stream.feed(piece)
        except JsonTextError:
            return written + stream.take()
        written += stream.take()
    pytest.fail(f"{''.join(pieces)!r} was read as {written!r}")


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert read(['["\\ud83d', '\\ude00"]']) == '["😀"]'


def test_reading_stops_behind_the_value() -> None:
    stream = JsonStream()

    assert stream.feed('  {"a": 1} rest') == len('  {"a": 1}')
    assert stream.is_done
