"""What the scripted model says: from a file, by the request, at any step size, with faults on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conversation import WEATHER, Answer, ask, json_object, new_engine, request
from zllm_ref.canonical.event import Event, Failed, FinishReason, Started, ToolCallFinished
from zllm_ref.canonical.message import Message, Role, Text
from zllm_ref.canonical.request import (
    CustomTool,
    JsonObjectFormat,
    JsonSchemaFormat,
    ToolChoiceNamed,
    ToolChoiceNone,
    ToolChoiceRequired,
)
from zllm_ref.dialect.registry import dialect_names
from zllm_ref.engine.script import SCRIPTED_TEXT, ScriptError, read_script

STORY = {
    "answers": [
        {
            "segments": [
                {"reasoning": "Which city?"},
                {"text": "Schön, 日本 🙂: let me look."},
                {"call": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}},
                {"call": {"name": "get_weather", "arguments": '{"city": "Bern", "days": 1e0}'}},
            ]
        }
    ]
}


@dataclass
class WaitingAnswer(Answer):
    """Hears nothing before it is told to."""

    may_go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, events: Sequence[Event]) -> None:
        assert self.may_go.wait(120)
        super().__call__(events)


def script(*texts: str, **fault: object) -> dict[str, Any]:
    answers = [{"segments": [{"text": text}], **({"fault": fault} if fault else {})} for text in texts]
    return {"answers": answers}


@pytest.mark.parametrize("dialect", dialect_names())
def test_the_joined_events_do_not_depend_on_how_many_tokens_make_a_step(dialect: str, tmp_path: Path) -> None:
    engine = new_engine(script=STORY, directory=tmp_path, dialect=dialect)
    try:
        answers = [ask(engine, request("hi", tools=(WEATHER,), tokens_per_step=size)) for size in (1, 2, 7, 1000)]
    finally:
        engine.close()

    assert len({json.dumps(answer.joined()) for answer in answers}) == 1
    assert answers[0].num_deliveries > answers[1].num_deliveries > answers[2].num_deliveries > answers[3].num_deliveries == 3
    calls = [event.arguments for event in answers[0].of(ToolCallFinished)]
    assert calls[0] == '{"city": "Zürich", "days": 2}'
    assert json.loads(calls[1]) == {"city": "Bern", "days": 1}
    assert answers[0].text().strip() == "Schön, 日本 🙂: let me look."
    assert answers[0].finished.reason is FinishReason.TOOL_CALLS
    usages = {answer.finished.usage.completion_tokens for answer in answers}
    assert len(usages) == 1


def test_the_scripts_own_step_counts_where_the_request_names_none(tmp_path: Path) -> None:
    engine = new_engine(script={**script("hello"), "tokens_per_step": 1000}, directory=tmp_path)
    try:
        assert ask(engine, request("hi")).num_deliveries == 3
        assert ask(engine, request("hi", tokens_per_step=1)).num_deliveries == 7
    finally:
        engine.close()


def test_the_answer_is_chosen_by_how_often_the_assistant_spoke(tmp_path: Path) -> None:
    engine = new_engine(script=script("one", "two"), directory=tmp_path)
    spoke = Message(Role.ASSISTANT, (Text("x"),))
    try:
        said = [ask(engine, request("a", *[spoke, "b"] * turn)).text() for turn in range(3)]  # type: ignore[list-item]
    finally:
        engine.close()

    assert said == ["one", "two", "one"]


def test_a_fault_before_the_first_token_fails_before_anything_started(tmp_path: Path) -> None:
    engine = new_engine(script=script("hello", after_tokens=0), directory=tmp_path)
    try:
        answer = ask(engine, request("hi"))
    finally:
        engine.close()

    assert [type(event) for event in answer.events] == [Failed]
    assert "script" not in answer.of(Failed)[0].error.message


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_fault_after_some_tokens_lets_exactly_those_out(size: int, tmp_path: Path) -> None:
    engine = new_engine(script=script("hello", after_tokens=3), directory=tmp_path)
    try:
        answer = ask(engine, request("hi", tokens_per_step=size))
    finally:
        engine.close()
    assert engine.loaded.cache.reserved_bytes == 0
    engine.loaded.cache.check()

    assert answer.text() == "hel"
    assert isinstance(answer.events[-1], Failed)


def test_a_stall_is_a_pause_and_the_answer_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("zllm_ref.engine.script.time.sleep", slept.append)
    engine = new_engine(script=script("hello", after_tokens=2, stall_seconds=0.1), directory=tmp_path)
    try:
        answer = ask(engine, request("hi"))
    finally:
        engine.close()

    assert answer.text() == "hello"
    assert slept == [0.1]


def test_without_a_script_two_sentences_are_said() -> None:
    engine = new_engine()
    try:
        answer = ask(engine, request("hi"))
    finally:
        engine.close()

    assert answer.text() == SCRIPTED_TEXT
    assert answer.finished.reason is FinishReason.END


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tools": (WEATHER,)}, '{"city": ""}'),
        ({"tools": (WEATHER,), "tool_choice": ToolChoiceRequired()}, '{"city": ""}'),
        ({"tools": (CustomTool("run"), WEATHER), "tool_choice": ToolChoiceNamed("get_weather")}, '{"city": ""}'),
        ({"tools": (WEATHER,), "tool_choice": ToolChoiceNone()}, None),
        ({"tools": (CustomTool("run"),)}, SCRIPTED_TEXT),
    ],
    ids=["auto", "required", "named", "none", "custom"],
)
def test_without_a_script_the_offered_tool_is_called(options: dict[str, Any], expected: str | None) -> None:
    engine = new_engine()
    try:
        answer = ask(engine, request("hi", **options))
    finally:
        engine.close()

    calls = [event.arguments for event in answer.of(ToolCallFinished)]
    assert calls == ([] if expected is None else [expected])


def test_without_a_script_a_format_gets_its_smallest_text() -> None:
    engine = new_engine()
    schema = JsonSchemaFormat("n", json_object({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}))
    try:
        assert ask(engine, request("hi", response_format=JsonObjectFormat())).text() == "{}"
        assert ask(engine, request("hi", response_format=schema)).text() == '{"n": 0}'
    finally:
        engine.close()


def test_each_step_takes_its_time_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("zllm_ref.engine.script.time.sleep", slept.append)
    engine = new_engine(script={**script("four"), "tokens_per_step": 2, "seconds_per_step": 0.25}, directory=tmp_path)
    try:
        answer = ask(engine, request("hi"))
    finally:
        engine.close()

    assert answer.text() == "four"
    assert slept == [0.25] * 3  # two tokens, two tokens, the end


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "no JSON"),
        ("[]", "list"),
        ('{"answers": {}}', "list of answers"),
        ('{"answers": [3]}', r"answers\[0\]"),
        ('{"answers": [{"segments": [{"txt": "x"}]}]}', r"answers\[0\].segments\[0\]"),
        ('{"answers": [{"segments": [{"call": {"name": "f", "arguments": "{"}}]}]}', r"answers\[0\]"),
        ('{"answers": [{"fault": 3}]}', r"answers\[0\].fault"),
        ('{"answers": [{"fault": {"after_tokens": "x"}}]}', "after_tokens"),
        ('{"answers": [{"fault": {"after_tokens": -1}}]}', "after_tokens"),
        ('{"answers": [{"fault": {"stall_seconds": "x"}}]}', "stall_seconds"),
        ('{"answers": [{"fault": {"stall_seconds": -1}}]}', "stall_seconds"),
        ('{"tokens_per_step": "x"}', "tokens_per_step"),
        ('{"tokens_per_step": 0}', "tokens_per_step"),
        ('{"seconds_per_step": "x"}', "seconds_per_step"),
        ('{"seconds_per_step": -1}', "seconds_per_step"),
        ('{"seconds_per_step": true}', "seconds_per_step"),
    ],
)
def test_a_file_that_is_no_script_says_where(text: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(text, "utf-8")

    with pytest.raises(ScriptError, match=f"(?s){where}.*allowed|{where}"):
        read_script(path)


def test_a_cancelled_answer_ends_and_others_go_on(tmp_path: Path) -> None:
    engine = new_engine(script=script("x" * 600), directory=tmp_path)
    try:
        left = WaitingAnswer()
        handle = engine.submit(request("hi"), left)
        handle.cancel()
        left.may_go.set()
        other = ask(engine, request("ho"))
    finally:
        engine.close()
    assert engine.loaded.cache.reserved_bytes == 0
    engine.loaded.cache.check()

    assert len(other.text()) == 600
    assert len(left.text()) <= 1
    assert isinstance(other.events[0], Started)


@pytest.mark.parametrize(("demand", "num_tokens"), [("Fail after 5 tokens.", 5), ("Fail after 0 tokens.", 0)])
def test_a_user_can_demand_a_failure_of_the_scripted_model(demand: str, num_tokens: int) -> None:
    engine = new_engine()
    try:
        answer = ask(engine, request(demand, tools=(WEATHER,)))
        plain = ask(engine, request(f"{demand} Or not.", tools=()))
    finally:
        engine.close()

    assert isinstance(answer.events[-1], Failed)
    assert bool(answer.text()) == bool(num_tokens)
    assert SCRIPTED_TEXT.startswith(answer.text().strip())
    assert plain.text().strip() == SCRIPTED_TEXT, "only the exact words are a demand"
