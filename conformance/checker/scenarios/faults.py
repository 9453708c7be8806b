"""Targets that fail on demand: after some tokens, before the first, or by falling silent for a while.

A scripted target takes the demand as the user's words, `Fail after 5 tokens.` or `Stall for 1.5 seconds after 3 tokens.`, and
does so. A target that just answers them in words cannot be judged: unproven.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from conformance.checker.answer import events_of, failures_of, read_answer
from conformance.checker.client import Socket
from conformance.checker.dialogue import ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table
from conformance.checker.verdict import StopError, Verdict

TABLE = Table()
_STALLS = (1.5, 4.0, 12.0)
"""Seconds. Where this machine or the target's is held up for longer than a stall, all of it seems to come at once: the next one
is longer, and only the last decides."""
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


@TABLE.scenario("failure-in-stream", "scripted", "T7 CH25")
def failure_in_stream(probe: Probe) -> None:
    """The engine fails after five tokens: the stream says so in the protocol's form, and ends without a success."""
    text = "Fail after 5 tokens."
    _demand_failure(probe, text)
    exchange = probe.client.ask(probe.protocol, ask(text).body(probe.protocol, probe.client.model, True))
    if exchange.status >= 500:
        return  # it waits for the whole answer before it says anything, and then it may well say 500
    told = failures_of(exchange)
    kinds = [str(event.get("type") or sorted(event)) for event in events_of(exchange)]
    probe.expect("T7", bool(told), "the failure, in the stream", f"{len(kinds)} events, the last {kinds[-2:]}", exchange)
    end = read_answer(exchange).end
    probe.expect("T7", end in ("", "failed"), "no success after the failure", end, exchange, "why it ended")


@TABLE.scenario("failure-before-first-token", "scripted", "T6")
def failure_before_first_token(probe: Probe) -> None:
    """The engine fails before it has said anything: that is an HTTP error, streamed or not."""
    text = "Fail after 0 tokens."
    _demand_failure(probe, text)
    exchange = probe.client.ask(probe.protocol, ask(text).body(probe.protocol, probe.client.model, True))
    probe.expect("T6", exchange.status >= 500, "an HTTP error from 500 on", exchange.status, exchange)


@TABLE.scenario("stall", "scripted", "X4 T9")
def stall(probe: Probe) -> None:
    """The engine falls silent in mid-answer: what it had said is out by then, and the answer is whole in the end."""
    _demand_failure(probe, "Fail after 5 tokens.")  # only a target that takes demands; a slow one may seem to stall
    whole = probe.ask(ask("Say hello in five words."))
    for stall_seconds in _STALLS:
        answer = probe.ask(ask(f"Stall for {stall_seconds} seconds after 3 tokens."))
        arrivals = [seconds for seconds, _ in answer.exchange.chunks]
        if arrivals[-1] < stall_seconds:
            raise StopError(Verdict.UNPROVEN, "the target does not stall on demand")
        if not probe.expect("X4", answer.text == whole.text, whole.text, answer.text, answer.exchange, "text, stalled and not"):
            break
        pause = max((later - earlier for earlier, later in pairwise(arrivals)), default=0.0)
        spoken = [seconds for seconds, piece in answer.exchange.chunks if _speaks(probe.protocol, piece)]
        is_out = bool(spoken) and spoken[0] + stall_seconds / 2 < arrivals[-1] and pause > stall_seconds / 2
        if is_out or stall_seconds == _STALLS[-1]:
            got = f"the first text {spoken[0] if spoken else 0:.2f} s, the end {arrivals[-1]:.2f} s after the request"
            probe.expect("T9", is_out, "the first tokens before the pause", got, answer.exchange)
            break


@TABLE.scenario("websocket-steer", "websocket", "WS15", ("responses",), is_optional=True)
def websocket_steer(probe: Probe) -> None:
    """A response that is steered in mid-answer ends as steered, and its successor follows; a late steer fails."""
    _demand_failure(probe, "Fail after 5 tokens.")
    for stall_seconds in _STALLS:
        socket = probe.client.open_websocket()
        steer, answer = _steer(probe, socket, stall_seconds)
        if answer.get("type") not in _ENDS[:3]:
            break
        socket.exchange.was_cut_by_us = True
        socket.close()
    else:
        raise StopError(Verdict.UNPROVEN, "the target does not stall on demand: nothing can be steered in time")
    kind = answer.get("type")
    if kind in ("error", "response.steer.failed") and "support" in str(answer.get("error")):
        socket.exchange.was_cut_by_us = True
        raise StopError(Verdict.UNSUPPORTED, f"steering: {answer.get('error')}")
    probe.expect("WS15", kind == "response.steer.accepted", "response.steer.accepted", answer, socket.exchange)
    ended = [event.get("response") or {} for event in (_next(socket, *_ENDS) for _ in range(2)) if event]
    reasons = [(one.get("incomplete_details") or {}).get("reason") for one in ended]
    probe.expect("WS15", reasons[:1] == ["steered"], "incomplete, reason steered", reasons, socket.exchange, "the first response")
    probe.expect("WS15", len(ended) == 2, "a successor", f"{len(ended)} responses", socket.exchange)
    socket.send(steer)
    late = socket.receive() or {}
    probe.expect("WS15", late.get("type") == "response.steer.failed", "response.steer.failed", late, socket.exchange, "too late")
    socket.close()


def _steer(probe: Probe, socket: Socket, stall_seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Asks for an answer that stalls, and steers it at its first text. -> the steering, and its answer or the end before it."""
    demand = f"Stall for {stall_seconds} seconds after 3 tokens."
    body = ask(demand, max_tokens=64).body("responses", probe.client.model, True)
    socket.send({"type": "response.create", **{key: value for key, value in body.items() if key != "stream"}})
    created = _next(socket, "response.created", *_ENDS)
    steer = {
        "type": "response.steer",
        "previous_response_id": (created.get("response") or {}).get("id"),
        "input": "Shorter, please.",
    }
    if created.get("type") != "response.created":
        return steer, created
    spoken = _next(socket, "response.output_text.delta", *_ENDS)
    if spoken.get("type") != "response.output_text.delta":
        return steer, spoken
    socket.send(steer)
    return steer, _next(socket, "response.steer.", *_ENDS)


def _next(socket: Socket, *kinds: str) -> dict[str, Any]:
    """The next event of which the kind begins so; nothing where none came."""
    while (event := socket.receive()) is not None:
        if str(event.get("type")).startswith(kinds):
            return event
    return {}


def _demand_failure(probe: Probe, text: str) -> None:
    """The same demand without streaming shows whether the target takes it: it must answer with a 5xx then."""
    exchange = probe.client.ask(probe.protocol, ask(text).body(probe.protocol, probe.client.model, False))
    if exchange.status < 500:
        raise StopError(Verdict.UNPROVEN, "the target does not fail on demand")


def _speaks(protocol: str, piece: bytes) -> bool:
    marks = {"chat": b'"content":', "responses": b"output_text.delta", "messages": b"text_delta"}
    return marks[protocol] in piece and b'"content":""' not in piece and b'"content":null' not in piece
