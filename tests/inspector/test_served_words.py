"""What the server says in English to the playground and the cache view is known to the page in Chinese, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zllm_ref.inspector.family import FAMILIES
from zllm_ref.inspector.playground import NO_TOOLS, SERVED_CONTROLS

SERVED = Path(__file__).parents[2] / "inspector-ui" / "src" / "text" / "served.ts"
KNOWN = dict(re.findall(r'^  "(.+)": "(.+)",$', SERVED.read_text("utf-8"), re.MULTILINE))
SAID = [
    *(control.title for family in FAMILIES.values() for control in family.controls),
    *(control.title for control in SERVED_CONTROLS),
    NO_TOOLS,
]


@pytest.mark.parametrize("text", sorted(set(SAID)))
def test_the_page_knows_the_sentence(text: str) -> None:
    patterns = ["(.+)".join(map(re.escape, english.split("{}"))) for english in KNOWN]

    assert sum(re.fullmatch(pattern, text) is not None for pattern in patterns) == 1


def test_what_differs_stands_in_both_languages_once() -> None:
    assert all(english.count("{}") == chinese.count("{}") <= 1 for english, chinese in KNOWN.items())
    assert all(re.search("[\u4e00-\u9fff]", chinese) for chinese in KNOWN.values())
