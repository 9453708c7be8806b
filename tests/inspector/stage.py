"""An application with its inspector, asked without a socket: as a loopback client, key or no key."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from zllm_ref.config import CacheSettings, DraftSettings, EngineSettings, ModelSettings, ServerSettings
from zllm_ref.engine import Engine
from zllm_ref.inspector import Recorder
from zllm_ref.inspector.inspector import Inspector
from zllm_ref.server import Inspect, create_app

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@dataclass
class Stage:
    engine: Engine
    recorder: Recorder
    inspector: Inspector
    app: FastAPI
    headers: dict[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=(self.host, 1234))
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=self.headers, timeout=60)

    async def get(self, path: str, status: int = 200) -> Any:
        async with self.client() as client:
            answer = await client.get(f"/inspect/api/{path}")
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, body: object, status: int = 200) -> Any:
        async with self.client() as client:
            answer = await client.post(f"/inspect/api/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def ask(self, path: str, body: dict[str, Any], status: int = 200) -> tuple[str, httpx.Response]:
        """A request of an ordinary client; → the id under which it is recorded, and the answer."""
        async with self.client() as client:
            answer = await client.post(path, json=body)
        assert answer.status_code == status, answer.text
        named = (answer.headers.get("x-request-id") or answer.headers.get("request-id")).removeprefix("req_")
        await self.settled(named)
        return named, answer

    async def settled(self, name: str) -> None:
        """The runtime keeps the end state after the last word is out: waits for that."""
        record = self.recorder.get(name)
        await until(lambda: record is None or record.report is None or record.timings is not None)

    async def chat(self, messages: Sequence[object], **more: Any) -> tuple[str, dict[str, Any]]:
        """A Chat Completions request, answered in one piece; → its id, and the assistant's message."""
        model = self.engine.models[0].id
        name, answer = await self.ask("/v1/chat/completions", {"model": model, "messages": messages, "temperature": 0, **more})
        return name, answer.json()["choices"][0]["message"] if not more.get("stream") else {}


async def until(condition: Callable[[], object]) -> None:
    """Returns when it is so; another thread makes it so."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.002)


@contextmanager
def rounds_held(engine: Engine) -> Iterator[None]:
    """No round of decoding runs inside: who has begun to answer stays in the midst of it, however slow we are."""
    rounds, may_go = engine.loaded.loop._rounds, threading.Event()
    honest = rounds.run

    def run(handles: Any) -> Any:
        assert may_go.wait(300)
        return honest(handles)

    rounds.run = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        rounds.run = honest  # type: ignore[method-assign]
        may_go.set()


def new_stage(
    model: str = "scripted", *, script: Path | None = None, keys: tuple[str, ...] = (), cache: CacheSettings | None = None,
    recorder: Recorder | None = None, dialect: str | None = None, draft: DraftSettings | None = None, **more: Any,
) -> Stage:  # fmt: skip
    engine = Engine(
        EngineSettings(
            model=ModelSettings(model=model, dtype="float32", threads=1, dialect=dialect),
            cache=cache or CacheSettings(resident_bytes=64 << 20),
            script=script,
            draft=draft or DraftSettings(),
        )
    )
    engine.load()
    recorder = recorder or Recorder()
    engine.observer = recorder
    inspector = Inspector(engine, recorder, keys_required=bool(keys))
    settings = ServerSettings(api_keys=keys, **more)
    return Stage(engine, recorder, inspector, create_app(engine, settings, Inspect(recorder, inspector)))


def write_script(path: Path, *answers: list[dict[str, Any]]) -> Path:
    """A script whose n-th answer has these segments."""
    path.write_text(json.dumps({"answers": [{"segments": segments} for segments in answers]}))
    return path


@asynccontextmanager
async def events(stage: Stage, query: str = "") -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """The stream of news, event by event. Talks ASGI itself: httpx's transport waits for the end of an answer."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    gone = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await pieces.put(message.get("body", b""))

    headers = [(b"host", b"127.0.0.1:8000"), *((name.lower().encode(), value.encode()) for name, value in stage.headers.items())]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/inspect/api/events", "raw_path": b"/inspect/api/events", "query_string": query.encode(), "headers": headers,
        "client": (stage.host, 1), "server": ("127.0.0.1", 8000), "root_path": "", "app": stage.app,
    }  # fmt: skip
    task = asyncio.create_task(stage.app(scope, receive, send))

    async def read() -> AsyncIterator[tuple[str, Any]]:
        deadline = asyncio.get_running_loop().time() + 120
        while True:
            assert asyncio.get_running_loop().time() < deadline, "what was waited for did not come"
            block = (await asyncio.wait_for(pieces.get(), 60)).decode()
            if block.startswith("event:"):
                name, data = block.strip().split("\n", 1)
                yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    try:
        yield read()
    finally:
        gone.set()
        await asyncio.wait_for(task, 60)
