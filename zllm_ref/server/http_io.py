"""Reading request bodies and writing responses: the few lines of ASGI that every endpoint shares."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.server.wire import ErrorShape

Headers = list[tuple[bytes, bytes]]
_NOT_IN_HEADER = re.compile(r"[^A-Za-z0-9_.,:+/=\[\]() -]")
_MAX_HEADER = 512
_DRAIN_SECONDS = 1.0


class ClientGone(Exception):
    """The client closed the connection before it had sent its whole request."""


async def read_request(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises ApiError(BODY_TOO_LARGE) as soon as it is known, without ever holding more than `limit` bytes."""
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        await _drain(receive)
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            pieces.clear()
            await _drain(receive)
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def _too_large(limit: int) -> ApiError:
    return ApiError(ErrorKind.BODY_TOO_LARGE, f"body: got more than {limit} bytes, allowed {limit}")


async def _drain(receive: Receive) -> None:
    """Lets a client that is still sending finish, for a moment: one that is cut off while it sends never reads the answer."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        return


def header(scope: Scope, name: bytes) -> str:
    """A request header, empty when absent. `name` in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return ""


def safe_header(text: str) -> bytes:
    """A value that cannot break out of its header, whatever a client called its fields."""
    return _NOT_IN_HEADER.sub("_", text)[:_MAX_HEADER].encode("ascii")


async def send_json(send: Send, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    body = text.encode()
    start: Headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, errors: ErrorShape, error: ApiError, request_id: str, *extra: tuple[bytes, bytes]) -> None:
    """E1-E7: the status and the body of the protocol that the path belongs to."""
    headers: Headers = [(errors.request_id_header, b"req_" + request_id.encode()), *extra]
    if error.retry_after_seconds is not None:
        headers.append((b"retry-after", str(max(1, round(error.retry_after_seconds))).encode()))
    if error.kind is ErrorKind.BODY_TOO_LARGE:
        headers.append((b"connection", b"close"))
    await send_json(send, errors.status_of(error), errors.render(error, request_id), headers)
