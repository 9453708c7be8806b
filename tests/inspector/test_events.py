"""The stream of news: everything first, then what changed, and nothing for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

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
        later: list[Any] = []
        async for name, data in news:
            later += data["requests"] if name == "requests" else ()
            ended = [one for one in later if one["id"] == new and one["state"] == "ended"]
            if ended:
                break

    assert [one["id"] for one in first["requests"]] == [old]
    assert {one["id"] for one in later} <= {old, new}
    assert ended[0]["output_tokens"] > 0


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
                if data["num_states"]:
                    break
                if len(gauges) == 1:  # further ones may tell of the request on its way
                    await stage.chat(HELLO)

    assert gauges[0]["num_states"] == 0
    assert gauges[-1]["num_states"] == 1


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
            answer = await asyncio.wait_for(client.get("/inspect/api/events"), 60)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "too_many"


class Page:
    """One page that listens, in ASGI itself: what it does at its first piece of news is how its stream ends."""

    def __init__(self, stage: Stage, way: str = "stays") -> None:
        self._stage = stage
        self._way = way
        self._gone = asyncio.Event()
        self._was_asked = False
        self.status = 0
        self.has_news = asyncio.Event()
        if way == "was never there":
            self._gone.set()

    async def listen(self) -> None:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": "/inspect/api/events", "raw_path": b"/inspect/api/events", "query_string": b"alternatives=1",
            "headers": [(b"host", b"127.0.0.1:8000")], "client": (self._stage.host, 1), "server": ("127.0.0.1", 8000),
            "root_path": "", "app": self._stage.app,
        }  # fmt: skip
        await self._stage.app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._was_asked:
            self._was_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._way == "is cut off before the news":
                raise OSError("planted: no connection")
        elif message.get("body"):
            self.has_news.set()
            if self._way == "leaves":
                self._gone.set()
            if self._way == "is cut off":
                raise OSError("planted: no connection")


async def end_one(stage: Stage, way: str) -> None:
    page = Page(stage, way)
    task = asyncio.create_task(page.listen())
    if way == "is cancelled":
        await asyncio.wait_for(page.has_news.wait(), 60)
        task.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert task.done()


@pytest.mark.parametrize(
    "way", ["leaves", "was never there", "is cut off", "is cut off before the news", "is cancelled", "is told nothing"]
)
async def test_a_stream_gives_its_place_back_however_it_ends(stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("planted: no news can be made")

    with monkeypatch.context() as patch:
        if way == "is told nothing":
            patch.setattr(stage.inspector, "requests", broken)
        for _ in range(17):
            await end_one(stage, way)

    assert stage.recorder.num_watchers == 0
    async with events(stage) as news:
        assert (await anext(news))[0] == "requests"


async def test_of_twenty_streams_at_once_sixteen_are_served(stage: Stage) -> None:
    pages = [Page(stage) for _ in range(20)]
    tasks = [asyncio.create_task(page.listen()) for page in pages]
    async with asyncio.timeout(120):
        while not all(page.status for page in pages):
            await asyncio.sleep(0.005)
    served = [page for page in pages if page.status == 200]
    assert stage.recorder.num_watchers == len(served) == 16
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert stage.recorder.num_watchers == 0


async def test_a_request_that_cannot_be_explained_hides_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    questions = [[{"role": "user", "content": text}] for text in ("One thing?", "Another thing?", "No thing?", "All things?")]
    names = [(await stage.chat(question))[0] for question in questions[:3]]
    honest = stage.inspector._prefix

    def prefix(view: Any, caller: Any) -> Any:
        if view.record.request_id == names[1]:
            raise ArithmeticError("planted: no cause can be found")
        return honest(view, caller)

    monkeypatch.setattr(stage.inspector, "_prefix", prefix)
    explained: dict[str, Any] = {}
    async with events(stage) as news:
        async for kind, data in news:
            explained |= {one["id"]: one["cause"] for one in data.get("requests", ()) if kind == "requests"}
            if explained.get(names[0]) is not None and explained.get(names[2]) is not None:
                break
        late, _ = await stage.chat(questions[3])
        async for kind, data in news:
            if kind == "requests" and any(one["id"] == late and one["cause"] is not None for one in data["requests"]):
                break

    assert explained[names[1]] is None
    assert caplog.text.count("has no cause that could be found") == 1
