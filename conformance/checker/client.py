"""Asks a server over raw HTTP and WebSocket, and keeps every byte with the time of its arrival.

No SDK here: an SDK repairs, skips and reorders. What was sent and what came is an `Exchange`, judged elsewhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

PATHS: Final = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}
_MAX_SENT: Final = 4
_SOCKET: Final[dict[str, Any]] = {
    "close_timeout": 2,
    "ping_interval": None,
    "max_size": None,
    "max_queue": None,
    "compression": None,
}
"""No pings: no rule says how soon a target that computes must answer one. No bounded queue: a close behind unread messages is
heard."""
_SECRET: Final = frozenset({"authorization", "x-api-key"})


class TargetError(Exception):
    """The target could not be reached, or broke off below HTTP. Neither its protocol's fault nor a verdict on it."""


@dataclass
class Exchange:
    """One request and everything that came back. `chunks` are (seconds since the request, bytes)."""

    protocol: str
    method: str
    url: str
    request: Any
    request_headers: dict[str, str]
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    was_cut_by_us: bool = False
    is_evidence: bool = False
    """Shows that something is not served. What stands there is nobody's protocol, so no rule judges it."""
    frames: list[dict[str, Any]] = field(default_factory=list)
    """WebSocket messages of both sides, in order."""

    @property
    def body(self) -> bytes:
        return b"".join(chunk for _, chunk in self.chunks)

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"

    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def curl(self) -> str:
        """A command that asks again. Over WebSocket: what was said, into the client that comes with `websockets`."""
        if self.frames:
            sent = [json.dumps(frame["message"]) if "message" in frame else str(frame.get("text")) for frame in self.frames
                    if frame.get("direction") == "sent"]  # fmt: skip
            told = " ".join("'" + one.replace("'", "'\\''") + "'" for one in sent[:_MAX_SENT])
            return f"(printf '%s\\n' {told}; sleep 30) | python -m websockets '{self.url}'"
        lines = [f"curl -N -X {self.method} '{self.url}'"]
        lines += [f"-H '{name}: {_hide(name, value)}'" for name, value in self.request_headers.items()]
        if self.request is not None:
            body = self.request if isinstance(self.request, str) else json.dumps(self.request, ensure_ascii=False)
            lines.append("-d '" + body.replace("'", "'\\''") + "'")
        return " \\\n  ".join(lines)

    def save(self, folder: Path, name: str) -> str:
        """Writes the trace: the request, the raw answer, and what HTTP said. Returns the path of the answer's file."""
        folder.mkdir(parents=True, exist_ok=True)
        request = self.request if not isinstance(self.request, str) else {"raw": self.request}
        (folder / f"{name}.request.json").write_text(json.dumps(request, ensure_ascii=False, indent=1), encoding="utf-8")
        head = {
            "method": self.method,
            "url": self.url,
            "request_headers": {key: _hide(key, value) for key, value in self.request_headers.items()},
            "status": self.status,
            "headers": self.headers,
            "arrivals": [[round(seconds, 4), len(chunk)] for seconds, chunk in self.chunks],
            "curl": self.curl(),
        }
        (folder / f"{name}.http.json").write_text(json.dumps(head, ensure_ascii=False, indent=1), encoding="utf-8")
        if self.frames:
            answer = folder / f"{name}.jsonl"
            answer.write_text("".join(json.dumps(frame, ensure_ascii=False) + "\n" for frame in self.frames), encoding="utf-8")
        else:
            answer = folder / f"{name}.{'sse' if self.is_stream else 'json'}"
            answer.write_bytes(self.body)
        return str(answer)


class Client:
    """A target under one base URL. Remembers the exchanges since `take_exchanges` was last called."""

    def __init__(self, base_url: str, model: str, api_key: str | None = None, timeout_seconds: float = 120.0) -> None:
        base = base_url.rstrip("/")
        self.base_url = base if base.endswith("/v1") else f"{base}/v1"
        self.model = model
        self.api_key = api_key
        self.timeout_seconds = timeout_seconds
        # A connection a request: a server may close an idle one at the moment in which it would be used again.
        self._http = httpx.Client(
            timeout=timeout_seconds,
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=0),
        )
        self._exchanges: list[Exchange] = []

    def close(self) -> None:
        self._http.close()

    def take_exchanges(self) -> list[Exchange]:
        taken, self._exchanges = self._exchanges, []
        return taken

    def put_back(self, exchanges: list[Exchange]) -> None:
        """Exchanges that were taken and not yet judged."""
        self._exchanges = [*exchanges, *self._exchanges]

    def headers_for(self, protocol: str) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if protocol == "messages":
            headers["anthropic-version"] = "2023-06-01"
            if self.api_key:
                headers["x-api-key"] = self.api_key
        elif self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        return headers

    def ask(self, protocol: str, body: Any, *, headers: Mapping[str, str | None] | None = None, query: str = "") -> Exchange:
        """POSTs a generation request of the protocol; a body that is a string is sent as it is, a header that is None is not."""
        return self.send(protocol, "POST", PATHS[protocol] + query, body, headers=headers)

    def send(
        self,
        protocol: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        stop_after_bytes: int | None = None,
        at_root: bool = False,
    ) -> Exchange:
        """One request. `stop_after_bytes` closes the connection as soon as so much has come."""
        base = self.base_url.removesuffix("/v1") if at_root else self.base_url
        given = {**self.headers_for(protocol), **(headers or {})}
        sent = {name: value for name, value in given.items() if value is not None}
        exchange = Exchange(protocol, method, base + path, body, sent)
        self._exchanges.append(exchange)
        content = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        began = time.monotonic()
        try:
            with self._http.stream(method, exchange.url, content=content, headers=sent) as response:
                exchange.status = response.status_code
                exchange.headers = dict(response.headers)
                received = 0
                for chunk in response.iter_raw():
                    exchange.chunks.append((time.monotonic() - began, chunk))
                    received += len(chunk)
                    if stop_after_bytes is not None and received >= stop_after_bytes:
                        exchange.was_cut_by_us = True
                        break
        except httpx.TransportError as error:
            if exchange.status == 0 or isinstance(error, httpx.TimeoutException):
                raise TargetError(f"{method} {exchange.url}: {type(error).__name__}: {error}") from error
            exchange.headers["x-conformance-broken"] = f"{type(error).__name__}: {error}"
        return exchange

    def open_websocket(self, *, headers: dict[str, str] | None = None) -> Socket:
        """Upgrades GET /v1/responses. Raises `UpgradeRefusedError` with the status where the server says no."""
        url = self.base_url.replace("http", "ws", 1) + "/responses"
        sent = {key: value for key, value in self.headers_for("responses").items() if key != "content-type"} | (headers or {})
        exchange = Exchange("responses", "GET", url, None, sent)
        self._exchanges.append(exchange)
        stack = ExitStack()
        try:
            connection = stack.enter_context(connect(url, additional_headers=sent, open_timeout=self.timeout_seconds, **_SOCKET))
        except InvalidStatus as error:
            exchange.status = error.response.status_code
            exchange.chunks.append((0.0, bytes(error.response.body or b"")))
            raise UpgradeRefusedError(exchange) from error
        except (OSError, WebSocketException, TimeoutError) as error:
            raise TargetError(f"{url}: {type(error).__name__}: {error}") from error
        exchange.status = 101
        return Socket(connection, stack, exchange, self.timeout_seconds)


class UpgradeRefusedError(Exception):
    """The server answered the upgrade with something else than 101."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(f"upgrade answered {exchange.status}")
        self.exchange = exchange


class Socket:
    """An open WebSocket, its messages kept in the exchange."""

    def __init__(self, connection: ClientConnection, stack: ExitStack, exchange: Exchange, timeout_seconds: float) -> None:
        self._connection = connection
        self._stack = stack
        self._timeout_seconds = timeout_seconds
        self.exchange = exchange

    def send(self, message: dict[str, Any] | str | bytes) -> None:
        if isinstance(message, dict):
            self.exchange.frames.append({"direction": "sent", "message": message})
            message = json.dumps(message)
        else:
            self.exchange.frames.append({"direction": "sent", "text": message if isinstance(message, str) else repr(message)})
        try:
            self._connection.send(message)
        except ConnectionClosed:
            self.exchange.headers["x-conformance-closed"] = "before a message could be sent"

    def receive(self, timeout_seconds: float | None = None) -> dict[str, Any] | None:
        """The next message; None where the connection has closed or nothing came in time."""
        try:
            text = self._connection.recv(timeout=timeout_seconds or self._timeout_seconds)
        except (ConnectionClosed, TimeoutError):
            return None
        if isinstance(text, bytes):
            self.exchange.frames.append({"direction": "received", "text": f"binary frame of {len(text)} bytes"})
            return {}
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self.exchange.frames.append({"direction": "received", "text": text})
            return {}
        self.exchange.frames.append({"direction": "received", "message": message})
        return message

    def turn(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Sends a request and reads up to its terminal event or error."""
        self.send(message)
        events: list[dict[str, Any]] = []
        while (event := self.receive()) is not None:
            events.append(event)
            if event.get("type") in ("response.completed", "response.incomplete", "response.failed", "error"):
                break
        return events

    def close(self) -> None:
        self._stack.close()


def _hide(name: str, value: str) -> str:
    return "***" if name.lower() in _SECRET else value
