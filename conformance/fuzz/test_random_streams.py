"""Running digests and the incremental JSON scanner, against the plain way."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from conformance.checker.joined import Joined, JsonScanner

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def scan(text: str, size: int) -> JsonScanner:
    scanner = JsonScanner()
    for start in range(0, len(text), size):
        scanner.feed(text[start : start + size])
    return scanner


@given(st.lists(st.text(max_size=12)))
def test_joined_pieces_equal_their_text_and_no_other(pieces: list[str]) -> None:
    joined = Joined()
    for piece in pieces:
        joined.add(piece)
    whole = "".join(pieces)

    assert joined.equals(whole)
    assert not joined.equals(whole + "x")


@given(JSON, st.integers(1, 7), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_every_json_value_is_accepted_at_any_split(value: object, size: int, is_ascii: bool, indent: int | str | None) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)

    scanner = scan(text, size)

    assert scanner.finish() is None
    assert scanner.kind == text.lstrip()[0]


@given(st.text(alphabet='{}[]",:\\u0129eE+-.truefalsn \n', max_size=14), st.integers(1, 5))
@example("01", 1)
@example('{"a":1,}', 2)
@example('"\\u12G4"', 1)
@example("[1 2]", 1)
@example("{}{}", 1)
def test_the_scanner_agrees_with_the_parser_of_the_standard_library(text: str, size: int) -> None:
    try:
        json.loads(text)
        is_json = True
    except ValueError:
        is_json = False

    assert (scan(text, size).finish() is None) == is_json
