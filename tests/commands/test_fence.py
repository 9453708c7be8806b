"""`fence explain` says what may come next, and why."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from zllm_ref.__main__ import main

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS), "utf-8")
    return path


def explained(
    capsys: pytest.CaptureFixture[str], tools: Path, dialect: str, choice: str, *rest: str
) -> tuple[int, dict[str, str]]:
    code = main(["fence", "explain", "--dialect", dialect, "--tools", str(tools), "--tool-choice", choice, *rest])
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    return code, {line[0]: line[1] for line in lines}


def test_where_two_names_part_both_ways_are_named(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    code, said = explained(capsys, tools, "glm-4.7", "required", "<tool_call>get_")

    assert code == 0
    assert said["where"] == "phase region, 5 tokens into the region"
    assert said["allowed"] == "2 tokens: 't' 'w'"
    assert said["forced"] == "nothing"
    assert said["why"].startswith("the grammar expects the text ")


def test_what_is_forced_is_written_out(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    code, said = explained(capsys, tools, "dsml-v4", "get_time")

    assert code == 0
    assert said["forced"].startswith(repr('\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_time">')[:-1])


def test_a_text_that_the_fence_would_not_allow_is_refused_at_its_token(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    code, said = explained(capsys, tools, "glm-4.7", "required", "<tool_call>get_x")

    assert code == 1
    assert said["refused"] == "token 5 'x' after '<tool_call>get_'"
    assert said["allowed"] == "2 tokens: 't' 'w'"


def test_free_text_names_its_markers(capsys: pytest.CaptureFixture[str], tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello <"))
    _, said = explained(capsys, tools, "dsml-v4", "auto", "-")

    assert "｜DSML｜" in said["markers"].split()
    assert said["where"] == "phase text"


def test_inside_the_reasoning_no_call_is_allowed(capsys: pytest.CaptureFixture[str], tools: Path) -> None:
    _, said = explained(capsys, tools, "chatml-qwen3", "auto", "--thinking", "so")

    assert said["markers"] == "</think>"
    assert said["why"].startswith("the reasoning is open")


@pytest.mark.parametrize(
    ("dialect", "choice", "words"),
    [("glm-4.7", "get_rain", "allowed get_weather, get_time"), ("glm-9", "auto", "glm-9")],
)
def test_what_cannot_be_asked_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], tools: Path, dialect: str, choice: str, words: str
) -> None:
    code = main(["fence", "explain", "--dialect", dialect, "--tools", str(tools), "--tool-choice", choice])

    assert code == 2
    assert words in capsys.readouterr().err
