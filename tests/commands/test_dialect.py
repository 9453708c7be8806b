"""The `dialect` command: list, parse, render."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest

from zllm_ref.commands import dialect as command
from zllm_ref.dialect.definitions import DEFINITIONS

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "note": {"type": "string"}}},
        },
    }
]
CALL = '<tool_call>\n{"name":"add","arguments":{"a":1e5,"note":"\\u4e2d\\/"}}\n</tool_call>'

TWICE = '{"a": 1, "a": 2}'


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(dest="command"))
    return command.run(parser.parse_args(["dialect", *arguments]))


@pytest.fixture
def tools(tmp_path: Path) -> str:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS))
    return str(file)


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))


def test_list_names_all_nine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(DEFINITIONS)


@pytest.mark.parametrize("chunk", [(), ("--chunk", "1"), ("--chunk", "3")])
def test_parse_prints_canonical_arguments_in_any_chunk(
    chunk: tuple[str, ...], tools: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, f"Hi\n{CALL}")

    assert run("parse", "--dialect", "chatml-hermes", "--tools", tools, *chunk) == 0

    assert json.loads(capsys.readouterr().out) == {
        "reasoning": "",
        "content": "Hi",
        "tool_calls": [{"name": "add", "arguments": '{"a": 1e5, "note": "中/"}'}],
        "diagnostics": [],
        "finish_reason": "tool_calls",
    }


def parsed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_parse_begins_in_text_unless_told_otherwise(tools: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "answer.txt"
    file.write_text(f"why\n</think>\n\n{CALL}")

    run("parse", "--dialect", "chatml-qwen3", "--tools", tools, "--thinking", str(file))
    thinking = parsed(capsys)
    run("parse", "--dialect", "chatml-qwen3", "--tools", tools, str(file))
    text = parsed(capsys)

    assert (thinking["reasoning"], thinking["content"], len(thinking["tool_calls"])) == ("why", "", 1)
    assert (text["reasoning"], text["content"], len(text["tool_calls"])) == ("", "why\n</think>\n", 1)


def test_parse_of_a_call_that_was_cut_says_length_and_no_call(
    tools: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, '<tool_call>\n{"name": "add", "arguments": {"note": "x')

    run("parse", "--dialect", "chatml-qwen2.5", "--tools", tools)

    answer = parsed(capsys)
    assert (answer["tool_calls"], answer["finish_reason"]) == ([], "length")
    assert answer["diagnostics"][0]["streamed_arguments"] == '{"note": "x'


def test_render_prints_the_exact_prompt(tools: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    feed(monkeypatch, json.dumps([{"role": "user", "content": "Hi\r\nthere"}]))

    assert run("render", "--dialect", "glm-4.7", "--no-thinking") == 0

    assert capsys.readouterr().out == "[gMASK]<sop><|user|>Hi\r\nthere<|assistant|></think>"


def test_render_asks_for_an_answer_unless_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [{"role": "user", "content": "q"}]
    ends = []
    for messages, option in (
        (asked, ()),
        ([*asked, {"role": "assistant", "content": "a"}], ()),
        (asked, ("--no-generation-prompt",)),
    ):
        feed(monkeypatch, json.dumps(messages))
        run("render", "--dialect", "chatml-hermes", *option)
        ends.append(capsys.readouterr().out[-11:])

    assert ends == [">assistant\n", "<|im_end|>\n", "<|im_end|>\n"]


def test_what_render_wrote_parse_reads(tools: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = '{"a": 0.1234567890123456789, "note": " <b> "}'
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    for name in DEFINITIONS:
        feed(monkeypatch, json.dumps({"messages": messages, "tools": TOOLS}))
        assert run("render", "--dialect", name, "--no-thinking") == 0
        prompt = capsys.readouterr().out
        feed(monkeypatch, prompt[prompt.rindex("ssistant") :])

        assert run("parse", "--dialect", name, "--tools", tools) == 0

        assert parsed(capsys)["tool_calls"] == [{"name": "add", "arguments": arguments}], name


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "JSON text"),
        ('{"messages": 1}', "list of messages"),
        ('[{"role": "king", "content": ""}]', "role"),
        ('[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}]', "arguments"),
        (
            '[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\\"a\\": 1, \\"a\\": 2}"}}]}]',
            "twice",
        ),
    ],
)
def test_a_bad_conversation_is_an_error_that_names_the_place(
    text: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(monkeypatch, text)

    assert run("render", "--dialect", "dsml-v4") == 1
    assert named in capsys.readouterr().err


def test_a_file_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "--dialect", "dsml-v4", "/nowhere/at/all") == 2
    assert "/nowhere/at/all" in capsys.readouterr().err
