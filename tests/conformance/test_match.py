"""The matchers of exchange goldens, each with what it takes and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.golden.match import Generaliser, Matcher


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        ({"$any": True}, None, ...),
        ({"$type": "string"}, "x", 1),
        ({"$type": "integer"}, 1, True),
        ({"$type": "string|null"}, None, 0),
        ({"$id": "a"}, "id-1", ""),
        ({"$time": True}, 1_764_457_200, 12),
        ({"$model": True}, "m", "other"),
        ({"$at_least": 1}, 1, 0),
        ({"a": 1}, {"a": 1}, {"a": 1, "b": 2}),
        ([1, 2], [1, 2], [1]),
        (1, 1, True),
    ],
)
def test_each_matcher_takes_its_own(expected: Any, right: Any, wrong: Any) -> None:
    assert Matcher("m").difference(expected, right) is None
    if wrong is not ...:
        assert Matcher("m").difference(expected, wrong) is not None


def test_an_id_name_stands_for_one_value() -> None:
    same, other = [{"$id": "a"}, {"$id": "a"}], [{"$id": "a"}, {"$id": "b"}]

    assert Matcher("m").difference(same, ["x", "x"]) is None
    assert Matcher("m").difference(same, ["x", "y"]) is not None
    assert Matcher("m").difference(other, ["x", "y"]) is None
    assert Matcher("m").difference(other, ["x", "x"]) is not None


def test_what_was_generalised_matches_itself_and_its_like() -> None:
    frame = {"id": "c1", "created": 1_764_457_200, "model": "m", "usage": {"prompt_tokens": 7, "cached_tokens": 5}, "text": "hi"}
    general = Generaliser("m").generalise(frame)

    assert Matcher("m").difference(general, frame) is None
    assert Matcher("m").difference(general, {**frame, "id": "c2", "usage": {"prompt_tokens": 9, "cached_tokens": 0}}) is None
    assert Matcher("m").difference(general, {**frame, "text": "ho"}) is not None
