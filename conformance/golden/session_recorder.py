"""Records connections through the official SDK's `responses.connect()`, and asks recorded ones again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import openai
from openai.resources.responses.responses import ResponsesConnection

from conformance.checker.client import Client
from conformance.golden.dialogues import CALL, FIRST, LAST, Dialogue, Step
from conformance.golden.match import Generaliser, Matcher
from conformance.golden.session_case import PROTOCOL, Line, SessionCase

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error", "response.steer.failed"})
_RESPONSES: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ANSWERS: Final = frozenset({"response.steer.accepted"})
_SILENCE_SECONDS: Final = 0.6
_STALL: Final = re.compile(r"Stall for [\d.]+ seconds")
_LONGER_STALLS: Final = (4.0, 12.0)


def record_sessions(wanted: Iterator[Dialogue], base_url: str, model: str, api_key: str) -> Iterator[SessionCase]:
    """Each dialogue, held once. Raises ValueError where what came breaks a rule: that is no example."""
    client = openai.OpenAI(base_url=f"{base_url.rstrip('/').removesuffix('/v1')}/v1", api_key=api_key, max_retries=0)
    for dialogue in wanted:
        talk = _Talk(model)
        with client.responses.connect(max_retries=0) as connection:
            for step in dialogue.steps:
                talk.say(connection, step)
        name = f"{PROTOCOL}/exchange/{dialogue.id}"
        raw = SessionCase(name, "exchange", dialogue.title, dialogue.rules, tuple(talk.lines))
        if found := raw.check().violations:
            raise ValueError(f"{name}: {found[0]}")
        general = Generaliser(model)
        lines = tuple(_generalised(general, side, message) for side, message in talk.lines)
        finals = tuple(general.generalise(final) for final in talk.finals)
        sdk = f"openai-python {openai.__version__}"
        yield SessionCase(name, "exchange", dialogue.title, dialogue.rules, lines, sdk=sdk, finals=finals)


class _Talk:
    """One connection's messages, and what the SDK made of each response."""

    def __init__(self, model: str) -> None:
        self.lines: list[Line] = []
        self.finals: list[dict[str, Any]] = []
        self._model = model
        self._names: dict[str, str] = {}

    def say(self, connection: ResponsesConnection, step: Step) -> None:
        for message in step.messages:
            told = self._filled(message)
            if told["type"] == "response.create":
                told.setdefault("model", self._model)
            connection.send(told)
            self.lines.append(("sent", told))
        wanted = step.num_ends
        while wanted is None or wanted > 0:
            raw = _receive(connection, None if wanted is not None else _SILENCE_SECONDS)
            if raw is None:
                return
            message = json.loads(raw)
            self.lines.append(("received", message))
            self._keep(connection, raw, message)
            if wanted is not None and message["type"] in _ENDS | _ANSWERS:
                wanted -= 1

    def _keep(self, connection: ResponsesConnection, raw: bytes, message: dict[str, Any]) -> None:
        if message["type"] == "response.created":
            self._names[LAST] = message["response"]["id"]
            self._names.setdefault(FIRST, message["response"]["id"])
        elif message["type"] == "response.output_item.added" and "call_id" in message["item"]:
            self._names[CALL] = message["item"]["call_id"]
        elif message["type"] in _RESPONSES:
            event: Any = connection.parse_event(raw)
            self.finals.append(event.response.model_dump(mode="json"))

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner) for inner in value]
        return self._names.get(value, value) if isinstance(value, str) else value


def _receive(connection: ResponsesConnection, timeout_seconds: float | None) -> bytes | None:
    """The next frame as the SDK got it; None after so long a silence."""
    if timeout_seconds is None:
        return connection.recv_bytes()
    try:
        frame: Any = connection._connection.recv(timeout=timeout_seconds)
    except TimeoutError:
        return None
    return frame if isinstance(frame, bytes) else frame.encode()


def _generalised(general: Generaliser, side: str, message: dict[str, Any]) -> Line:
    return side, general.generalise(message) if side == "received" else general.known(message)


def replay_session(case: SessionCase, client: Client) -> list[str]:
    """Says again what was said and compares what comes; returns what differs.

    What was spoken into a stall can be too late where this machine or the target's was held up: then the stall is made longer.
    """
    told = _replay(case, client)
    for seconds in _LONGER_STALLS:
        lines = tuple((side, _with_stall(message, seconds) if side == "sent" else message) for side, message in case.lines)
        if not told or lines == case.lines:
            break
        told = _replay(replace(case, lines=lines), client)
    return told


def _with_stall(message: Any, seconds: float) -> Any:
    return json.loads(_STALL.sub(f"Stall for {seconds} seconds", json.dumps(message)))


def _replay(case: SessionCase, client: Client) -> list[str]:
    """Lane by lane."""
    matcher = Matcher(client.model)
    socket = client.open_websocket()
    told: list[str] = []
    try:
        for sent, expected in _rounds(case):
            for message in sent:
                socket.send(matcher.filled(message))
            got = [socket.receive() or {} for _ in expected]
            for lane in dict.fromkeys(one.get("stream_id") for one in expected):
                mine = [one for one in expected if one.get("stream_id") == lane]
                theirs = [one for one in got if one.get("stream_id") == lane]
                pairs = zip(mine, theirs, strict=False)
                told += [f"{case.id}: {found}" for one, other in pairs if (found := matcher.difference(one, other)) is not None]
                if len(mine) != len(theirs):
                    told.append(f"{case.id}: lane {lane}: got {len(theirs)} messages, allowed {len(mine)}")
    finally:
        socket.close()
        client.take_exchanges()
    return told


def _rounds(case: SessionCase) -> Iterator[tuple[list[Any], list[Any]]]:
    """What is sent in a row, and what is received in a row after it."""
    sent: list[Any] = []
    received: list[Any] = []
    for side, message in case.lines:
        if side == "sent" and received:
            yield sent, received
            sent, received = [], []
        (sent if side == "sent" else received).append(message)
    yield sent, received
