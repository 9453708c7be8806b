"""The sentences of a cause are the same here and on the page, in each of its languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zllm_ref.inspector import explanation, prefix_break, prefix_cause
from zllm_ref.inspector.prefix_words import SENTENCES, Named, Sentence, cause

ROOT = Path(__file__).resolve().parents[2]


def of_page(language: str) -> dict[str, str]:
    text = (ROOT / "inspector-ui" / "src" / "text" / f"{language}.ts").read_text("utf-8")
    return dict(re.findall(r'^  "said\.(\w+)": "(.+)",$', text, re.MULTILINE))


def test_the_page_says_the_same_english() -> None:
    assert of_page("en") == SENTENCES


def test_the_page_says_every_sentence_in_chinese_with_the_same_values() -> None:
    chinese = of_page("zh")

    assert list(chinese) == list(SENTENCES)
    for name, text in chinese.items():
        assert set(re.findall(r"\{(\w+)\}", text)) == set(re.findall(r"\{(\w+)\}", SENTENCES[name])), name
        assert re.search(r"[\u4e00-\u9fff]", text), name


def test_every_sentence_is_said_by_some_rule_and_no_other_is() -> None:
    code = "".join(Path(module.__file__ or "").read_text("utf-8") for module in (prefix_cause, prefix_break, explanation))
    said = set(re.findall(r'\bcause\((?:"\w+"|kind), "(\w+)"', code)) | set(re.findall(r'"(tools_\w+|reasoning_by_\w+)"', code))

    assert said == set(SENTENCES)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (cause("changed_clock", "changed", was="12:00", now="it's\n1"), "It said '12:00' and says \"it's\\n1\"."),
        (
            cause("edited_history", "message_edited", message=3, role="user", was="a", now="b"),
            "Message 3 (user) said 'a' and says 'b'.",
        ),
        (
            Named(
                "changed_tools",
                (Sentence("tools_added", (("names", ("a", "b")),)), Sentence("tools_removed", (("names", ("c",)),))),
            ),
            "Tools added: 'a', 'b'. Tools removed: 'c'.",
        ),
    ],
    ids=["texts", "numbers", "names"],
)
def test_texts_are_quoted_and_numbers_and_roles_are_not(told: Named, text: str) -> None:
    assert told.detail == text


def test_values_are_plain_json() -> None:
    assert Sentence("tools_added", (("names", ("a", "b")),)).shown() == {"name": "tools_added", "values": {"names": ["a", "b"]}}
