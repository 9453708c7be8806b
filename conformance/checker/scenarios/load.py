"""Many clients at once, and clients that leave."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from conformance.checker.answer import read_answer
from conformance.checker.dialogue import ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table

TABLE = Table()
_NUM_STREAMS = 8


@TABLE.scenario("concurrency", "load", "T7 CH1 RS4 AN1")
def concurrency(probe: Probe) -> None:
    """Eight streams at once: each whole, each with an id of its own."""
    bodies = [
        ask(f"Say the number {number}.", max_tokens=24).body(probe.protocol, probe.client.model, True)
        for number in range(_NUM_STREAMS)
    ]
    with ThreadPoolExecutor(_NUM_STREAMS) as pool:
        exchanges = list(pool.map(lambda body: probe.client.ask(probe.protocol, body), bodies))
    busy = sum(exchange.status in (429, 503, 529) for exchange in exchanges)
    probe.need(busy < _NUM_STREAMS, "the target was busy")
    answers = [probe.answer(exchange) for exchange in exchanges if exchange.status not in (429, 503, 529)]
    ids = [answer.id for answer in answers]
    rule = {"chat": "CH1", "responses": "RS4", "messages": "AN1"}[probe.protocol]
    probe.expect(rule, len(set(ids)) == len(ids), "an id for each answer", sorted(ids), exchanges[0])


@TABLE.scenario("abort", "load", "T13")
def abort(probe: Probe) -> None:
    """A client that leaves in mid-stream: the next one is served."""
    body = ask("Count from one to one hundred in words.", max_tokens=200).body(probe.protocol, probe.client.model, True)
    path = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}[probe.protocol]
    probe.client.send(probe.protocol, "POST", path, body, stop_after_bytes=1)
    body = ask("Say hello.", max_tokens=16).body(probe.protocol, probe.client.model, True)
    after = probe.client.ask(probe.protocol, body)
    is_served = after.status == 200 and bool(read_answer(after).end)
    probe.expect("T13", is_served, "a whole answer", f"{after.status} {after.body[-200:].decode(errors='replace')}", after)
