"""The model of a target that names none: the first that it lists, as soon as it lists one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler

import pytest

from conformance.checker.client import TargetError
from conformance.checker.run import find_model
from conformance.loopback import LoopbackServer

READY = (200, {"object": "list", "data": [{"id": "the-model"}, {"id": "another"}]})
EMPTY = (200, {"object": "list", "data": []})
LOADING = (503, {"error": {"message": "loading"}})
Serve = Callable[[Sequence[tuple[int, object]]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that gives these answers one after the other, the last one for ever. -> its base URL."""
    servers: list[LoopbackServer] = []

    def start(answers: Sequence[tuple[int, object]]) -> str:
        waiting = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None: ...

        servers.append(LoopbackServer(Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("before", [(), (EMPTY, EMPTY), (LOADING, EMPTY)], ids=["at once", "empty first", "loading first"])
def test_the_first_model_is_taken_as_soon_as_one_is_listed(before: Sequence[tuple[int, object]], serve: Serve) -> None:
    assert find_model(serve([*before, READY]), None) == "the-model"


def test_a_list_that_stays_empty_is_told(serve: Serve) -> None:
    with pytest.raises(TargetError, match="no model in /models; name one with --model"):
        find_model(serve([EMPTY]), None, patience_seconds=0.1)


@pytest.mark.parametrize("body", [{"data": "x"}, {"data": [1]}, [], {"error": "who are you?"}], ids=str)
def test_what_is_no_list_of_models_is_told_without_waiting(body: object, serve: Serve) -> None:
    with pytest.raises(TargetError, match="allowed a list of models"):
        find_model(serve([(401, body)]), None)
