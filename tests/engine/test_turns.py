"""Turn after turn: own answers come back as they were generated, and the cache covers them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conversation import WEATHER, Answer, ask, new_engine, request, user
from zllm_ref.canonical.event import Failed, FinishReason
from zllm_ref.canonical.message import Message, Role, ToolResult
from zllm_ref.canonical.request import CacheSettings, ReasoningSettings
from zllm_ref.config import CacheSettings as StoreSettings
from zllm_ref.dialect.registry import dialect_names
from zllm_ref.engine import Engine
from zllm_ref.engine.replay_store import ReplayTable
from zllm_ref.engine.script import SCRIPTED_TEXT, TokenScript, token_script
from zllm_ref.tokenizer.byte_vocabulary import byte_vocabulary


@pytest.fixture
def scripted() -> Iterator[Engine]:
    engine = new_engine()
    yield engine
    engine.close()
    engine.loaded.cache.check()
    assert engine.loaded.cache.reserved_bytes == 0


def cached(answer: Answer) -> int:
    return answer.finished.usage.cached_tokens


TOOL_STORY = {
    "answers": [
        {
            "segments": [
                {"text": "Let me look."},
                {"call": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}},
            ]
        },
        {"segments": [{"text": "Sunny."}]},
    ]
}
REASONED_STORY = {
    "answers": [
        {"segments": [{"reasoning": "They want the weather."}, *TOOL_STORY["answers"][0]["segments"]]},
        {"segments": [{"reasoning": "Good."}, {"text": "Sunny."}]},
    ]
}


def second_turn(engine: Engine, *, also: str | None = None) -> tuple[Answer, Answer]:
    """A question, a call, its result, and the answer to that."""
    asked = user("What is the weather in Zürich?")
    first = ask(engine, request(asked, tools=(WEATHER,)))
    called = first.message()
    assert len(called.tool_calls) == 1
    result = Message(Role.TOOL, (ToolResult(called.tool_calls[0].id, "18 degrees", name="get_weather"),))
    following = (asked, called, result) if also is None else (asked, called, result, user(also))
    return first, ask(engine, request(*following, tools=(WEATHER,)))


def covered(first: Answer) -> int:
    """All of turn 1 but its end and the token before it, which was said and never fed."""
    return first.finished.usage.prompt_tokens + first.finished.usage.completion_tokens


@pytest.mark.parametrize("dialect", dialect_names())
def test_the_turn_after_a_tool_call_reuses_all_of_the_turn_before(dialect: str, tmp_path: Path) -> None:
    engine = new_engine(script=TOOL_STORY, directory=tmp_path, dialect=dialect)
    try:
        first, second = second_turn(engine)
    finally:
        engine.close()

    assert second.text().strip() == "Sunny."
    assert cached(second) >= covered(first)


@pytest.mark.parametrize("dialect", dialect_names())
def test_with_reasoning_kept_the_turn_after_a_thoughtful_call_reuses_all_of_it(dialect: str, tmp_path: Path) -> None:
    engine = new_engine(script=REASONED_STORY, directory=tmp_path, dialect=dialect, keep_reasoning=True)
    try:
        first, second = second_turn(engine)
    finally:
        engine.close()

    assert cached(second) >= covered(first)


@pytest.mark.parametrize("dialect", dialect_names())
def test_where_the_dialect_drops_old_reasoning_the_reuse_ends_exactly_there(dialect: str, tmp_path: Path) -> None:
    """A new question of the user's makes the reasoning before it old."""
    engine = new_engine(script=REASONED_STORY, directory=tmp_path, dialect=dialect)
    try:
        asked = request(user("What is the weather in Zürich?"), tools=(WEATHER,))
        in_state = list(engine.prompt(asked).ids)
        assert engine.loaded.script is not None
        in_state += token_script(engine.loaded.script, asked, engine.loaded.dialect, engine.loaded.vocabulary).ids[:-1]
        first, second = second_turn(engine, also="And tomorrow?")
        said = first.message()
        result = Message(Role.TOOL, (ToolResult(said.tool_calls[0].id, "18 degrees", name="get_weather"),))
        following = engine.prompt(request(*asked.messages, said, result, user("And tomorrow?"), tools=(WEATHER,))).ids
    finally:
        engine.close()

    common = next(
        (place for place, pair in enumerate(zip(in_state, following, strict=False)) if pair[0] != pair[1]), len(in_state)
    )
    assert cached(second) == common
    if engine.loaded.dialect.definition.reasoning is None:
        assert common == len(in_state)
    else:
        assert first.reasoning == "They want the weather."
        assert common >= len(engine.prompt(asked).ids) - 8  # only the framing of a thought may go beside the thought itself


def test_own_answers_are_replayed_as_generated_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model spaces its arguments as no renderer would: only the remembered ids have them."""

    def speak(*_: object) -> TokenScript:
        text = '<tool_call>\n{"name":"get_weather","arguments":{"city":"Rome"}}\n</tool_call><|im_end|>'
        return TokenScript(tuple(byte_vocabulary().encode_with_markers(text)))

    monkeypatch.setattr("zllm_ref.engine.bridge.token_script", speak)
    engine = new_engine(state_directory=tmp_path / "state")
    first = ask(engine, request("weather?", tools=(WEATHER,)))
    result = Message(Role.TOOL, (ToolResult(first.message().tool_calls[0].id, "18 degrees", name="get_weather"),))
    again = request("weather?", first.message(), result, tools=(WEATHER,))
    before = engine.prompt(again).ids
    engine.close()

    restarted, forgetful = new_engine(state_directory=tmp_path / "state"), new_engine()
    after, rendered = restarted.prompt(again).ids, forgetful.prompt(again).ids
    restarted.close()
    forgetful.close()

    assert after == before
    assert b'"arguments":{' in bytes(token for token in before if token < 256)
    assert rendered != before, "a renderer would have written the same, so nothing was shown"


def test_another_clients_answers_are_never_replayed(scripted: Engine) -> None:
    """Remembered by namespace: what one key was told says nothing in another key's prompt."""
    first = ask(scripted, request("hi", cache=CacheSettings(namespace="a")))
    history = ("hi", first.message(), "more")

    own = scripted.prompt(request(*history, cache=CacheSettings(namespace="a"))).ids
    other = scripted.prompt(request(*history, cache=CacheSettings(namespace="b"))).ids

    assert own == other  # text alone renders as it was generated
    assert cached(ask(scripted, request(*history, cache=CacheSettings(namespace="b")))) == 0


def test_a_disk_that_refuses_costs_no_answer(tmp_path: Path) -> None:
    engine = new_engine(state_directory=tmp_path / "state")
    store = engine.loaded.answers
    assert isinstance(store, ReplayTable)
    try:
        store.close()
        with pytest.raises(sqlite3.ProgrammingError):
            store._connection.execute("SELECT 1")

        answer = ask(engine, request("hi"))
        following = ask(engine, request("hi", answer.message(), "more"))
    finally:
        engine.close()

    assert answer.text() == SCRIPTED_TEXT
    assert answer.finished.reason is FinishReason.END
    assert following.finished.reason is FinishReason.END


def test_a_table_of_answers_keeps_the_latest(tmp_path: Path) -> None:
    table = ReplayTable(tmp_path / "deep" / "answers.sqlite", capacity=2)
    for key in "abc":
        table.put(key, key.upper())
    table.put("b", "B2")
    table.close()

    again = ReplayTable(tmp_path / "deep" / "answers.sqlite", capacity=2)

    assert [again.get(key) for key in "abc"] == [None, "B2", "C"]
    again.close()


def test_a_reasoning_switched_off_is_not_started(tmp_path: Path) -> None:
    engine = new_engine(script=REASONED_STORY, directory=tmp_path, dialect="glm-4.7")
    try:
        prompt = engine.prompt(request("hi", reasoning=ReasoningSettings(enabled=False)))
        default = engine.prompt(request("hi"))
    finally:
        engine.close()

    assert default.starts_in_reasoning
    assert not prompt.starts_in_reasoning


def test_a_closed_engine_gives_its_directories_back_and_the_next_one_finds_the_states(tmp_path: Path) -> None:
    cache = StoreSettings(ssd_directory=tmp_path / "ssd", write_behind=False)
    first = new_engine(cache=cache, state_directory=tmp_path / "state")
    answer = ask(first, request("hello " * 60))
    first.close()
    first.close()

    second = new_engine(cache=cache, state_directory=tmp_path / "state")
    try:
        again = ask(second, request("hello " * 60))
    finally:
        second.close()

    assert answer.finished.usage.prompt_tokens == again.finished.usage.prompt_tokens
    assert cached(again) == again.finished.usage.prompt_tokens - 1


def test_a_closed_engine_answers_nobody_and_says_so() -> None:
    engine = new_engine()
    engine.close()
    answer = Answer()

    engine.submit(request("hi"), answer)

    assert [type(event) for event in answer.events] == [Failed]
    assert "shutting down" in answer.of(Failed)[0].error.message
