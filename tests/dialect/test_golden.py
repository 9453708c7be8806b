"""Whole conversations, byte for byte as the vendors' own renderers write them. Each file names its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zllm_ref.canonical.json_value import from_python
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.commands.chat_form import messages_from_json, tools_from_json
from zllm_ref.dialect import MarkerSegment, dialect_for, text_of
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.tokenizer import byte_vocabulary

FOLDER = Path(__file__).parent / "golden"
VOCABULARY = byte_vocabulary()


def cases() -> list[Any]:
    found = []
    for file in sorted(FOLDER.glob("*.json")):
        golden = json.loads(file.read_text("utf-8"))
        for case in golden["cases"]:
            name = f"{file.stem}: {case['title']}, thinking {case['thinking']}"
            found.append(pytest.param(file.stem, case, golden["tools"], id=name))
    return found


@pytest.mark.parametrize(("name", "case", "tools"), cases())
def test_the_vendor_would_have_written_the_same_bytes(name: str, case: dict[str, Any], tools: list[Any]) -> None:
    dialect = dialect_for(None, VOCABULARY, name)
    messages = messages_from_json(from_python(case["messages"]))
    given = tools_from_json(from_python(tools)) if case["tools"] else ()
    reasoning = ReasoningSettings(enabled=case["thinking"], effort=case.get("effort"))

    segments = dialect.render(messages, given, reasoning=reasoning)

    assert text_of(segments) == case["text"]


@pytest.mark.parametrize(("name", "case", "tools"), cases())
def test_every_marker_of_the_frame_is_an_id(name: str, case: dict[str, Any], tools: list[Any]) -> None:
    """Encoded at once by a tokenizer that knows its added tokens, the vendor's text has the same markers in the same order."""
    dialect = dialect_for(None, VOCABULARY, name)
    messages = messages_from_json(from_python(case["messages"]))
    given = tools_from_json(from_python(tools)) if case["tools"] else ()
    reasoning = ReasoningSettings(enabled=case["thinking"], effort=case.get("effort"))

    segments = dialect.render(messages, given, reasoning=reasoning)

    markers = [segment.id for segment in segments if isinstance(segment, MarkerSegment)]
    assert markers == [token_id for token_id in VOCABULARY.encode_with_markers(case["text"]) if token_id >= 256]


def test_every_dialect_but_the_projects_own_has_a_golden() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(DEFINITIONS) - {"chatml-hermes"}
