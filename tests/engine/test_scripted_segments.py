"""What only a script can make a model do: decline, call free-form tools, speak to whoever offers a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.conversation import WEATHER, Answer, ask, new_engine, request
from zllm_ref.canonical.event import FinishReason, RefusalDelta, TextDelta, ToolCallFinished, ToolCallStarted
from zllm_ref.canonical.request import CustomTool
from zllm_ref.dialect.registry import dialect_names
from zllm_ref.engine.script import ScriptError, read_script


def heard(directory: Path, segments: list[dict[str, Any]], *sizes: int, dialect: str | None = None, **asked: Any) -> list[Answer]:
    engine = new_engine(script={"answers": [{"segments": segments}]}, directory=directory, dialect=dialect)
    try:
        return [ask(engine, request("hi", tokens_per_step=size, **asked)) for size in sizes or (1,)]
    finally:
        engine.close()


def refused(answer: Answer) -> str:
    return "".join(event.text for event in answer.of(RefusalDelta))


@pytest.mark.parametrize("dialect", dialect_names())
def test_a_refusal_begins_where_the_script_says_at_any_step_size(dialect: str, tmp_path: Path) -> None:
    segments = [{"text": "Schön. <a "}, {"refusal": "Nein 🙂, das nicht."}]

    answers = heard(tmp_path, segments, 1, 3, 1000, dialect=dialect)

    assert {answer.text() for answer in answers} == {"Schön. <a "}
    assert {refused(answer) for answer in answers} == {"Nein 🙂, das nicht."}
    assert {answer.finished.reason for answer in answers} == {FinishReason.REFUSAL}


def test_a_refusal_that_the_limit_cut_ends_for_that_reason(tmp_path: Path) -> None:
    (answer,) = heard(tmp_path, [{"refusal": "No, never."}], max_tokens=3)

    assert refused(answer) == "No,"
    assert answer.finished.reason is FinishReason.LENGTH


def test_the_log_probabilities_of_a_refusal_spell_it(tmp_path: Path) -> None:
    (answer,) = heard(tmp_path, [{"text": "é "}, {"refusal": "Nö"}], logprobs=True)

    assert b"".join(one.bytes for event in answer.of(TextDelta) for one in event.logprobs) == "é ".encode()
    assert b"".join(one.bytes for event in answer.of(RefusalDelta) for one in event.logprobs) == "Nö".encode()


def test_a_free_form_call_says_its_input_as_it_stands(tmp_path: Path) -> None:
    (answer,) = heard(tmp_path, [{"call": {"name": "exec", "input": 'say("a\n")'}}], tools=(CustomTool("exec"),))

    assert [event.arguments for event in answer.of(ToolCallFinished)] == ['say("a\n")']
    assert answer.of(ToolCallStarted)[0].custom


def test_an_answer_for_a_tool_is_there_for_those_who_offer_it(tmp_path: Path) -> None:
    answers = [
        {"when_offered": "get_weather", "segments": [{"call": {"name": "get_weather", "arguments": {"city": "Bern"}}}]},
        {"when_offered": "other", "segments": [{"text": "never"}]},
        {"segments": [{"text": "last"}]},
    ]
    engine = new_engine(script={"answers": answers}, directory=tmp_path)
    try:
        offered, not_offered = ask(engine, request("hi", tools=(WEATHER,))), ask(engine, request("hi"))
        second = ask(engine, request("hi", offered.message(), "go on", tools=(WEATHER,)))
    finally:
        engine.close()

    assert len(offered.of(ToolCallFinished)) == 1
    assert not_offered.text() == second.text() == "last"


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ('{"segments": [{"refusal": "a"}, {"text": "b"}]}', "segments[1]"),
        ('{"segments": [{"refusal": 1}]}', "segments[0]"),
        ('{"when_offered": 1}', "when_offered"),
        ('{"segments": [{"call": {"name": "f", "input": "x", "namespace": 1}}]}', "namespace"),
    ],
)
def test_a_segment_that_says_nothing_is_refused(answer: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(f'{{"answers": [{answer}]}}', "utf-8")

    with pytest.raises(ScriptError) as error:
        read_script(path)

    assert where in str(error.value)
