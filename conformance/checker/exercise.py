"""What the captures of a scenario put to the test: a rule that nothing exercised has not held, it is unproven.

The names are those of `needs` in `requirements/rules.json`:

    stream, unary, error      a whole stream, a unary answer, an answer with a status from 400 on
    refusal                   a request for a stream that was refused with such a status
    failure                   a stream in which the target told a failure
    tools, parallel           an answer with a call; with more than one
    reasoning, logprobs       an answer with either
    unicode                   text outside ASCII
    websocket, turns, lanes   a connection; with two responses or more; with named lanes
    envelope, steer           an error envelope, a steering event on it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from conformance.checker.answer import failures_of, read_answer
from conformance.checker.client import Exchange


def what_was_exercised(protocol: str, exchanges: Iterable[Exchange]) -> set[str]:
    """The names of all that the exchanges of this protocol hold; the empty name is always among them, if there was any."""
    seen: set[str] = set()
    for exchange in exchanges:
        if exchange.protocol == protocol and exchange.status and not exchange.is_evidence:
            seen.add("")
            seen |= set(_of_websocket(exchange)) if exchange.frames else set(_of_http(exchange))
    return seen


def _of_http(exchange: Exchange) -> Iterator[str]:
    is_for_stream = isinstance(exchange.request, dict) and exchange.request.get("stream") is True
    if exchange.status >= 400:
        yield "error"
        if is_for_stream:
            yield "refusal"
        return
    if exchange.status != 200 or exchange.was_cut_by_us:
        return
    if not exchange.is_stream:
        yield "unary"
        return
    yield "stream"
    if failures_of(exchange):
        yield "failure"
    answer = read_answer(exchange)
    if answer.calls:
        yield "tools"
    if len(answer.calls) > 1:
        yield "parallel"
    if answer.reasoning:
        yield "reasoning"
    if answer.logprobs:
        yield "logprobs"
    if not (answer.text + answer.reasoning).isascii():
        yield "unicode"


def _of_websocket(exchange: Exchange) -> Iterator[str]:
    yield "websocket"
    events = [_message(frame) for frame in exchange.frames if frame.get("direction") == "received"]
    kinds = [str(event.get("type")) for event in events]
    if kinds.count("response.created") > 1:
        yield "turns"
    if any(event.get("stream_id") for event in events):
        yield "lanes"
    if "error" in kinds:
        yield "envelope"
    if any(kind.startswith("response.steer.") for kind in kinds):
        yield "steer"


def _message(frame: dict[str, Any]) -> dict[str, Any]:
    message = frame.get("message")
    return message if isinstance(message, dict) else {}
