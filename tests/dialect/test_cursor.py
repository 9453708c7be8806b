"""A place in text that is still arriving: what is found never depends on where the text was cut."""

from __future__ import annotations

import re

import pytest

from zllm_ref.dialect.cursor import WAIT, Cursor, Found, Tag

LINE = Tag("\n")
CLOSER = Tag(">", re.compile(r"\s*>"), re.compile(r"(?:\s+)\Z"))


def untils(cursor: Cursor, parts: list[str], tags: list[Tag]) -> tuple[str, Found | None]:
    """What `until` has given when the last part is there and the text has ended."""
    taken = ""
    for part in [*parts, ""]:
        cursor.append(part)
        if not part:
            cursor.end()
        text, found = cursor.until(tags)
        taken += text
        if found is not None:
            return taken, found
    return taken, None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n>", ("a", Found(CLOSER, "\n>"))),
        ("a\n \n>b", ("a", Found(CLOSER, "\n \n>"))),
        ("a \n>", ("a", Found(CLOSER, " \n>"))),
        ("a\nb>", ("a", Found(LINE, "\n"))),
        ("a \nb>", ("a ", Found(LINE, "\n"))),
        ("a\n", ("a", Found(LINE, "\n"))),
        ("a>\n", ("a", Found(CLOSER, ">"))),
    ],
)
def test_a_tag_is_found_only_when_none_can_begin_before_it_or_there_and_be_longer(text: str, expected: tuple[str, Found]) -> None:
    for tags in ([LINE, CLOSER], [CLOSER, LINE]):
        assert untils(Cursor(), [text], tags) == expected
        assert untils(Cursor(), list(text), tags) == expected


def test_of_literals_too_the_earlier_and_the_longer_is_awaited() -> None:
    tags = [Tag("b"), Tag("abc"), Tag("bcd")]

    for text, expected in (("xabc", ("x", "abc")), ("xabd", ("xa", "b")), ("xbcd", ("x", "bcd")), ("xbc", ("x", "b"))):
        for parts in ([text], list(text)):
            taken, found = untils(Cursor(), parts, tags)
            assert found is not None
            assert (taken, found.spelling) == expected


def test_what_stands_here_is_the_longer_of_two_that_begin_alike() -> None:
    tags = [Tag("<x"), Tag("<xy")]
    cursor = Cursor()

    cursor.append("<x")
    assert cursor.match(tags) is WAIT
    cursor.append("y")
    assert cursor.match(tags) == Found(tags[1], "<xy")
    cursor.append("<x>")
    assert cursor.match(tags) == Found(tags[0], "<x")


def test_at_the_end_nothing_is_awaited() -> None:
    tags = [Tag("<x"), Tag("<xy")]
    cursor = Cursor()
    cursor.append("<x")

    cursor.end()

    assert cursor.match(tags) == Found(tags[0], "<x")
