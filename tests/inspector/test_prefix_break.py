"""What the server says of a prompt that was not reused, where the reason lies with the cache and not with the text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.inspector.stage import Stage, new_stage, rounds_held, until
from zllm_ref.config import CacheSettings

LONG = "word " * 60


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture
def tiny() -> Iterator[Stage]:
    stage = new_stage("tiny-llama")
    yield stage
    stage.engine.close()


async def prefix(stage: Stage, name: str) -> Any:
    return await stage.get(f"requests/{name}/prefix")


async def test_the_first_request_has_nothing_before_it(tiny: Stage) -> None:
    name, _ = await tiny.chat(said(LONG), max_tokens=2)

    found = await prefix(tiny, name)

    assert found["nearest"] is None
    assert found["cause"]["name"] == "first_request"


async def test_the_same_prompt_again_breaks_nothing(tiny: Stage) -> None:
    await tiny.chat(said(LONG), max_tokens=2)
    name, _ = await tiny.chat(said(LONG), max_tokens=2)

    found = await prefix(tiny, name)

    assert found["cause"] is None
    assert found["total"]["cached_tokens"] == found["total"]["tokens"] - 1


async def test_another_salt_is_another_namespace(tiny: Stage) -> None:
    first, _ = await tiny.chat(said(LONG), max_tokens=2, cache_salt="a")
    name, _ = await tiny.chat(said(LONG), max_tokens=2, cache_salt="b")
    again, _ = await tiny.chat(said(LONG), max_tokens=2, cache_salt="b")

    found = await prefix(tiny, name)

    assert found["cause"]["name"] == "other_namespace"
    assert found["cause"]["lost_tokens"] == found["total"]["tokens"]
    assert found["nearest"]["request"] == first
    assert found["nearest"]["namespace_differs"] is True
    assert (await prefix(tiny, again))["cause"] is None


async def test_a_little_more_in_another_namespace_is_not_the_cause(tiny: Stage) -> None:
    """Both share the template's own beginning; what differs is the question."""
    await tiny.chat(said("Weather in Paris?"), max_tokens=2, cache_salt="a")
    await tiny.chat(said("Write a poem."), max_tokens=2, cache_salt="b")
    name, _ = await tiny.chat(said("Weather?"), max_tokens=2, cache_salt="b")

    assert (await prefix(tiny, name))["cause"]["name"] == "other_conversation"


async def test_a_state_that_was_given_up_is_called_evicted() -> None:
    """Room for one request only: the second one's state takes the first one's place."""
    stage = new_stage("tiny-llama", cache=CacheSettings(resident_bytes=2_200_000))
    try:
        await stage.chat(said("plum " * 80), max_tokens=2)
        for index in range(4):
            await stage.chat(said(f"{index} pear " * 80), max_tokens=2)
        name, _ = await stage.chat(said("plum " * 80), max_tokens=2)

        found = await prefix(stage, name)

        assert found["cause"]["name"] == "evicted"
        assert found["cause"]["lost_tokens"] == found["nearest"]["fork"] - found["total"]["cached_tokens"] - 1
    finally:
        stage.engine.close()


async def test_a_request_that_still_ran_had_no_state_to_give(tiny: Stage) -> None:
    model = tiny.engine.models[0].id
    body = {"model": model, "messages": said(LONG), "temperature": 0, "seed": 1, "ignore_eos": True}
    loop = tiny.engine.loaded.loop
    with rounds_held(tiny.engine):
        first = asyncio.create_task(tiny.ask("/v1/chat/completions", {**body, "max_tokens": 60}))
        await until(lambda: [one.started_at is not None for one in tiny.recorder.records("")] == [True])
        second = asyncio.create_task(tiny.ask("/v1/chat/completions", {**body, "max_tokens": 2}))
        await until(lambda: len([*loop._incoming, *loop._all()]) == 2)  # beside the first, or taken up by the very next step
    name, _ = await second
    await first

    assert (await prefix(tiny, name))["cause"]["name"] == "still_running"


async def test_a_model_whose_states_cannot_be_cut_says_so() -> None:
    stage = new_stage("tiny-llama", cache=CacheSettings(resident_bytes=64 << 20, whole_states_only=True))
    try:
        await stage.chat([{"role": "system", "content": LONG}, *said("Weather?")], max_tokens=2)
        name, _ = await stage.chat([{"role": "system", "content": LONG}, *said("A poem.")], max_tokens=2)

        found = await prefix(stage, name)

        assert found["cause"]["name"] == "whole_states_only"
        assert found["total"]["cached_tokens"] == 0
        assert found["nearest"]["fork"] > 60
    finally:
        stage.engine.close()


async def test_a_snapshot_of_another_dialect_is_named_with_its_dialect(tmp_path: Path) -> None:
    cache = CacheSettings(resident_bytes=64 << 20, ssd_directory=tmp_path / "ssd", ssd_bytes=64 << 20)
    messages = [{"role": "system", "content": LONG}, *said("Weather?")]
    before = new_stage("tiny-qwen3", cache=cache, dialect="chatml-qwen2.5")
    await before.chat(messages, max_tokens=2)
    before.engine.close()

    now = new_stage("tiny-qwen3", cache=cache, dialect="chatml-hermes")
    try:
        name, _ = await now.chat(messages, max_tokens=2)
        found = await prefix(now, name)
        assert found["cause"]["name"] == "other_dialect_revision"
        assert "chatml-qwen2.5" in found["cause"]["detail"]
        assert found["nearest"]["what"] == "state"
    finally:
        now.engine.close()
    same = new_stage("tiny-qwen3", cache=cache, dialect="chatml-hermes")
    try:
        name, _ = await same.chat(messages, max_tokens=2)
        assert (await prefix(same, name))["cause"] is None
        summary = (await same.get(f"requests/{name}"))["summary"]
        assert summary["cached_ssd"] > 60
        assert (await same.get(f"requests/{name}/context"))["spans"][0]["kind"] == "hit_ssd"
    finally:
        same.engine.close()


async def test_a_clock_in_a_real_prompt_is_named_and_noted_in_the_list(tiny: Stage) -> None:
    for time in ("12:00", "12:07"):
        name, _ = await tiny.chat([{"role": "system", "content": f"{LONG} It is {time}."}, *said("Hi")], max_tokens=2)

    found = await prefix(tiny, name)

    assert found["cause"]["name"] == "changed_clock"
    listed = (await tiny.get("requests"))["requests"]
    assert {one["id"]: one["cause"] for one in listed}[name] == "changed_clock"
