"""Records exchanges: the official SDK talks to a proxy that keeps the bytes, and says what it made of them."""

from __future__ import annotations

import inspect
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import anthropic
import httpx
import openai

from conformance.checker.stream_check import StreamCheck
from conformance.golden.exchange import HEADERS, ExchangeCase, frames_of
from conformance.golden.exchanges import Wanted, body_of
from conformance.golden.match import Generaliser
from conformance.loopback import LoopbackServer


class _Proxy(LoopbackServer):
    def __init__(self, target: str) -> None:
        super().__init__(_Handler)
        self.target = target.removesuffix("/").removesuffix("/v1")
        self.bodies: queue.Queue[bytes] = queue.Queue()


class _Handler(BaseHTTPRequestHandler):
    server: _Proxy

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        kept = ("content-type", "authorization", "x-api-key", "anthropic-version", *HEADERS)
        headers = {name: value for name, value in self.headers.items() if name.lower() in kept}
        pieces = []
        with httpx.stream("POST", self.server.target + self.path, content=content, headers=headers, timeout=120) as answer:
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers.get("content-type", ""))
            self.end_headers()
            for piece in answer.iter_raw():
                pieces.append(piece)
                self.wfile.write(piece)
        self.server.bodies.put(b"".join(pieces))

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


@contextmanager
def _proxy(target: str) -> Iterator[_Proxy]:
    server = _Proxy(target)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def record(protocol: str, wanted: list[Wanted], base_url: str, model: str, api_key: str) -> Iterator[ExchangeCase]:
    """Each exchange, recorded. Raises what the SDK raises: a stream that an SDK refuses is no golden."""
    talk = {"chat": _chat, "responses": _responses, "messages": _messages}[protocol]
    sdk = f"anthropic-python {anthropic.__version__}" if protocol == "messages" else f"openai-python {openai.__version__}"
    with _proxy(base_url) as proxy:
        url = f"http://127.0.0.1:{proxy.server_address[1]}"
        for row in wanted:
            body = body_of(protocol, row, model)
            final = talk(url, api_key, body)
            raw = proxy.bodies.get(timeout=60)
            _demand_silence(protocol, row.id, raw, body)
            general = Generaliser(model)
            frames = tuple((event, general.generalise(data)) for event, data in frames_of(raw))
            request = {key: {"$model": True} if key == "model" else value for key, value in body.items()}
            name = f"{protocol}/exchange/{row.id}"
            yield ExchangeCase(name, protocol, row.title, row.rules, sdk, request, frames, general.generalise(final))


def _demand_silence(protocol: str, name: str, raw: bytes, body: dict[str, Any]) -> None:
    """What breaks a rule is not recorded as an example."""
    check = StreamCheck(protocol, request=body)
    check.feed(raw)
    if found := check.finish():
        raise ValueError(f"{protocol}/{name}: {found[0]}")


def _chat(url: str, api_key: str, body: dict[str, Any]) -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=api_key, max_retries=0)
    arguments = {key: value for key, value in body.items() if key != "stream"}
    try:
        with client.chat.completions.stream(**arguments, extra_headers=HEADERS) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion().model_dump(mode="json")
    except openai.LengthFinishReasonError as error:
        return error.completion.model_dump(mode="json")


def _responses(url: str, api_key: str, body: dict[str, Any]) -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=api_key, max_retries=0)
    arguments = {key: value for key, value in body.items() if key != "stream"}
    with client.responses.stream(**arguments, extra_headers=HEADERS) as stream:
        final = None
        for event in stream:
            if event.type in ("response.completed", "response.incomplete"):
                final = event.response
    assert final is not None
    return final.model_dump(mode="json")


def _messages(url: str, api_key: str, body: dict[str, Any]) -> Any:
    client = anthropic.Anthropic(base_url=url, api_key=api_key, max_retries=0)
    known = inspect.signature(client.messages.stream).parameters
    arguments = {key: value for key, value in body.items() if key in known}
    rest = {key: value for key, value in body.items() if key not in known and key != "stream"}
    with client.messages.stream(**arguments, extra_headers=HEADERS, extra_body=rest) as stream:
        return stream.get_final_message().model_dump(mode="json")
