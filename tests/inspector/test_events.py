"""The stream of news: everything first, then what changed, and nothing for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.inspector.stage import Stage, events, new_stage

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = new_stage()
    yield made
    made.engine.close()


async def test_the_first_news_are_all_and_the_next_what_changed(stage: Stage) -> None:
    old, _ = await stage.chat(HELLO)

    async with events(stage) as news:
        _, first = await anext(event async for event in news if event[0] == "requests")
        new, _ = await stage.chat(HELLO)
        later = []
        async for name, data in news:
            if name == "requests":
                later += data["requests"]
                if later and later[-1]["id"] == new and later[-1]["state"] == "ended":
                    break

    assert [one["id"] for one in first["requests"]] == [old]
    assert {one["id"] for one in later} <= {old, new}
    assert later[-1]["output_tokens"] > 0


async def test_a_cause_comes_as_a_change_of_its_request(stage: Stage) -> None:
    async with events(stage) as news:
        name, _ = await stage.chat(HELLO)
        async for kind, data in news:
            found = [one for one in data.get("requests", ()) if kind == "requests" and one["cause"] is not None]
            if found:
                break

    assert (found[0]["id"], found[0]["cause"]) == (name, "first_request")


async def test_the_gauge_comes_when_it_changes(stage: Stage) -> None:
    async with events(stage) as news:
        gauges = []
        async for kind, data in news:
            if kind == "cache":
                gauges.append(data)
                if len(gauges) == 2:
                    break
                await stage.chat(HELLO)

    assert gauges[0]["num_states"] == 0
    assert gauges[1]["num_states"] == 1


async def test_polling_with_a_cursor_tells_the_same(stage: Stage) -> None:
    await stage.chat(HELLO)
    first = await stage.get("requests")

    quiet = await stage.get(f"requests?after={first['cursor']}")
    name, _ = await stage.chat(HELLO)
    news = await stage.get(f"requests?after={first['cursor']}")

    assert quiet == {"cursor": first["cursor"], "requests": [], "gone": []}
    assert [one["id"] for one in news["requests"]] == [name]
    assert news["cursor"] > first["cursor"]


async def test_when_the_last_page_closes_nobody_looks_any_more(stage: Stage) -> None:
    async with events(stage, "alternatives=1") as one:
        await anext(one)
        async with events(stage, "alternatives=1") as two:
            await anext(two)
            assert stage.recorder.num_watchers == 2
        assert stage.recorder.num_watchers == 1
    assert stage.recorder.num_watchers == 0


async def test_a_seventeenth_stream_is_refused(stage: Stage) -> None:
    from contextlib import AsyncExitStack

    async with AsyncExitStack() as stack:
        for _ in range(16):
            await anext(await stack.enter_async_context(events(stage)))
        async with stage.client() as client:
            answer = await asyncio.wait_for(client.get("/inspect/api/events"), 5)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "too_many"
