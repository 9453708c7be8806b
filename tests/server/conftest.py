from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.server.fake_engine import PATIENCE, FakeEngine
from zllm_ref.config import ServerSettings
from zllm_ref.server import Inspect
from zllm_ref.server.app import bind, create_app, make_server


class RunningServer:
    """A real uvicorn server in a thread, on a free loopback port."""

    def __init__(self, engine: FakeEngine, settings: ServerSettings, inspect: Inspect | None = None) -> None:
        self.engine = engine
        ready = threading.Event()
        address: list[tuple[str, int]] = []

        def on_ready(host: str, port: int) -> None:
            address.append((host, port))
            ready.set()

        self._server = make_server(create_app(engine, settings, inspect), settings, on_ready)
        sockets = [bind("127.0.0.1", 0)]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve(sockets)), daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE)
        host, port = address[0]
        self.url = f"http://{host}:{port}"

    def begin_to_stop(self) -> None:
        self._server.should_exit = True

    def stop(self) -> None:
        self.begin_to_stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


Serve = Callable[..., RunningServer]


@pytest.fixture(scope="session")
def all_servers() -> Iterator[list[RunningServer]]:
    """Every server of the run; each is told to end after its test, and has ended when the run has."""
    servers: list[RunningServer] = []
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def serve(all_servers: list[RunningServer]) -> Iterator[Serve]:
    servers: list[RunningServer] = []

    def start(engine: FakeEngine | None = None, **settings: object) -> RunningServer:
        settings = {"shutdown_grace_seconds": 0.1, **settings}
        server = RunningServer(engine or FakeEngine(), ServerSettings(**settings))  # type: ignore[arg-type]
        servers.append(server)
        return server

    yield start
    all_servers += servers
    for server in servers:
        server.begin_to_stop()
