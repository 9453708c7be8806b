"""Conversation state of Responses: chains, storage, forms of input."""

from __future__ import annotations

from typing import Any

from conformance.checker.absence import NOBODYS, NOT_SERVED, is_not_served, told
from conformance.checker.answer import Answer, events_of, read_answer
from conformance.checker.dialogue import WEATHER, Ask, Result, Said, User, ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table
from conformance.checker.verdict import StopError, Verdict

TABLE = Table()
_RESPONSES = ("responses",)


@TABLE.scenario("previous-response", "state", "RS20", _RESPONSES, is_optional=True)
def previous_response(probe: Probe) -> None:
    """A chain grows by what was said, once; instructions are not carried over; an unknown id is an error."""
    stored: dict[str, Any] = {"store": True}
    first = probe.ask(ask("My name is Ada. Say hello.", extra=stored, max_tokens=32))
    chained: list[Answer] = [first]
    for text in ("What is my name?", "And again?"):
        extra = {**stored, "previous_response_id": chained[-1].id}
        chained.append(probe.ask(Ask((User(text),), extra=extra, max_tokens=32)))
    alone = probe.ask(ask("What is my name?", max_tokens=32))
    replayed = probe.ask(Ask((User("My name is Ada. Say hello."), Said(first), User("What is my name?")), max_tokens=32))
    prompts = [answer.counts.prompt or 0 for answer in chained]

    probe.expect(
        "RS20",
        prompts[1] > (alone.counts.prompt or 0),
        f"more than {alone.counts.prompt}: the first turn is there",
        prompts[1],
        chained[1].exchange,
    )
    probe.expect(
        "RS20",
        prompts[1] == replayed.counts.prompt,
        f"{replayed.counts.prompt}, as with the items sent in full",
        prompts[1],
        chained[1].exchange,
    )
    growth = prompts[2] - prompts[1], prompts[1] - prompts[0]
    probe.expect("RS20", 0 < growth[0] <= 2 * growth[1] + 64, "linear growth", prompts, chained[2].exchange)
    instructed = probe.ask(Ask((User("Hello."),), system="Answer in rhymes. " * 20, extra=stored, max_tokens=32))
    after = probe.ask(Ask((User("Hello."),), extra={**stored, "previous_response_id": instructed.id}, max_tokens=32))
    bound = (instructed.counts.prompt or 0) + (instructed.counts.completion or 0)
    probe.expect(
        "RS20",
        (after.counts.prompt or 0) < bound,
        f"less than {bound}: no instructions of the turn before",
        after.counts.prompt,
        after.exchange,
    )
    body = Ask((User("Hi"),), extra={"previous_response_id": "resp_that_is_not_there"}).body(
        "responses", probe.client.model, False
    )
    unknown = probe.client.ask("responses", body)
    probe.refuse(unknown, 400, 404)
    error = (unknown.json() or {}).get("error") or {}
    probe.expect(
        "RS20", error.get("code") == "previous_response_not_found", "code previous_response_not_found", error.get("code"), unknown
    )
    probe.expect("E4", error.get("param") == "previous_response_id", "param previous_response_id", error.get("param"), unknown)


@TABLE.scenario("stored-response", "state", "RS21", _RESPONSES, is_optional=True)
def stored_response(probe: Probe) -> None:
    """store decides whether GET finds the response; DELETE takes it away."""
    stored = probe.ask(ask("Say hello.", extra={"store": True}, max_tokens=24))
    forgotten = probe.ask(ask("Say hello.", extra={"store": False}, max_tokens=24))

    found = probe.client.send("responses", "GET", f"/responses/{stored.id}")
    if is_not_served(probe.client, found, f"/{NOBODYS}/x"):
        found.is_evidence = True
        raise StopError(Verdict.UNSUPPORTED, f"responses are not kept: {told(found)}")
    probe.expect("RS21", found.status == 200, "200", found.status, found, "GET of a stored response")
    if found.status == 200:
        probe.expect("RS21", found.json() == stored.raw, "the terminal response", found.json(), found)
    missing = probe.client.send("responses", "GET", f"/responses/{forgotten.id}")
    probe.refuse(missing, 404)
    deleted = probe.client.send("responses", "DELETE", f"/responses/{stored.id}")
    if deleted.status in NOT_SERVED - {404}:
        deleted.is_evidence = True
        raise StopError(Verdict.UNSUPPORTED, f"responses cannot be deleted: {told(deleted)}")
    probe.expect("RS21", deleted.status in (200, 204), "200", deleted.status, deleted, "DELETE")
    gone = probe.client.send("responses", "GET", f"/responses/{stored.id}")
    probe.refuse(gone, 404)


@TABLE.scenario("input-forms", "state", "RS26 AN18 C6 K3 K10")
def input_forms(probe: Probe) -> None:
    """A message sent as a string and as a list of parts costs the same; tool outputs may be either."""
    text = probe.ask(Ask((User("Hello there."),), system="Be brief.", max_tokens=24))
    as_parts = Ask((User("Hello there.", as_parts=True),), system="Be brief.", system_as_parts=True, max_tokens=24)
    exchange = probe.client.ask(probe.protocol, as_parts.body(probe.protocol, probe.client.model, True))
    if probe.protocol == "messages":
        got = f"{exchange.status} {exchange.body[:200].decode(errors='replace')}"
        probe.expect("K3", exchange.status == 200, "200: system as a list with cache_control", got, exchange)
    parts = probe.answer(exchange)
    rule = {"chat": "X7", "responses": "RS26", "messages": "AN18"}[probe.protocol]
    probe.expect(
        rule, text.counts.prompt == parts.counts.prompt, text.counts.prompt, parts.counts.prompt, parts.exchange, "prompt tokens"
    )
    if probe.protocol == "responses":
        bare = Ask((User("x"),), extra={"input": "Hello there."}, system="Be brief.", max_tokens=24)
        answer = probe.ask(bare)
        probe.expect(
            rule,
            answer.counts.prompt == text.counts.prompt,
            text.counts.prompt,
            answer.counts.prompt,
            answer.exchange,
            "input as a string",
        )


@TABLE.scenario("tool-output-forms", "tools", "RS26 AN18 C6 K10", is_optional=True)
def tool_output_forms(probe: Probe) -> None:
    """A tool's output as a string and as a list renders the same; an error is accepted."""
    question = "What is the weather in Paris? Use the tool."
    first = probe.ask(ask(question, tools=(WEATHER,), tool_choice="required", max_tokens=256))
    probe.need(first.calls and not first.was_cut(256), "no whole call came")
    answers = []
    for as_parts in (False, True):
        results = tuple(Result(call, "sunny", as_parts=as_parts) for call in first.calls)
        answers.append(probe.ask(Ask((User(question), Said(first), *results), tools=(WEATHER,), max_tokens=32)))
    rule = {"chat": "X7", "responses": "C6", "messages": "K10"}[probe.protocol]
    counts = [answer.counts.prompt for answer in answers]
    probe.expect(rule, counts[0] == counts[1], counts[0], counts[1], answers[1].exchange, "prompt tokens")
    if probe.protocol == "messages":
        failed = tuple(Result(call, "no such city", is_error=True) for call in first.calls)
        probe.ask(Ask((User(question), Said(first), *failed), tools=(WEATHER,), max_tokens=32))


@TABLE.scenario("background", "state", "RS1 RS3", _RESPONSES, is_optional=True)
def background(probe: Probe) -> None:
    """A background stream is queued first, and can be picked up again after any event."""
    whole = probe.ask(ask("Say hello in five words.", extra={"background": True, "store": True}, max_tokens=24))
    again = probe.client.send("responses", "GET", f"/responses/{whole.id}?stream=true&starting_after=0")

    probe.need(again.status == 200, "the stream cannot be picked up again")
    numbers = [event.get("sequence_number") for event in events_of(again)]
    probe.expect("RS3", bool(numbers) and numbers[0] == 1, "the event after number 0", numbers[:3], again)


@TABLE.scenario("thinking-round-trip", "reasoning", "K7 AN8", ("messages",), is_optional=True)
def thinking_round_trip(probe: Probe) -> None:
    """A thinking block with its signature is accepted back unchanged."""
    first = probe.ask(ask("How much is 17 times 23?", thinks=True, max_tokens=2048))
    probe.need(first.reasoning, "no thinking came")
    asked = Ask((User("How much is 17 times 23?"), Said(first), User("Sure?")), thinks=True, max_tokens=2048)
    second = probe.client.ask("messages", asked.body("messages", probe.client.model, True))
    got = f"{second.status} {second.body[:200].decode(errors='replace')}"
    if probe.expect("K7", second.status == 200, "200: the thinking block is taken back", got, second):
        counts = read_answer(second).counts
        is_longer = (counts.prompt or 0) > (first.counts.prompt or 0)
        probe.expect("K7", is_longer, f"more than {first.counts.prompt} prompt tokens", counts.prompt, second)


@TABLE.scenario("encrypted-reasoning", "reasoning", "RS19 C5", _RESPONSES, is_optional=True)
def encrypted_reasoning(probe: Probe) -> None:
    """Reasoning that the server does not keep travels sealed, and comes back."""
    extra = {"include": ["reasoning.encrypted_content"]}
    first = probe.ask(ask("How much is 17 times 23?", thinks=True, extra=extra, max_tokens=512))
    items = [item for item in first.raw.get("output") or () if item.get("type") == "reasoning"]
    probe.need(items, "no reasoning item came")
    probe.expect("RS19", all(item.get("encrypted_content") for item in items), "encrypted_content", items, first.exchange)
    asked = Ask((User("How much is 17 times 23?"), Said(first), User("Sure?")), thinks=True, extra=extra, max_tokens=512)
    second = probe.client.ask("responses", asked.body("responses", probe.client.model, True))
    got = f"{second.status} {second.body[:200].decode(errors='replace')}"
    probe.expect("C5", second.status == 200, "200: the sealed reasoning is taken back", got, second)
