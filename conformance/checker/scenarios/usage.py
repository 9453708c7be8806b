"""Counting: what a prompt costs, what of it was cached, and whether all who count agree."""

from __future__ import annotations

from typing import Any

from conformance.checker.absence import NOT_SERVED
from conformance.checker.answer import Answer
from conformance.checker.dialogue import WEATHER, Ask, User, ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table

TABLE = Table()
_LONG = "The prefix cache keeps what was computed once. " * 60


@TABLE.scenario("count-tokens", "count_tokens", "AN23 X6 K8", ("messages",), is_optional=True)
def count_tokens(probe: Probe) -> None:
    """count_tokens grows with what is added and equals the usage of the same request."""
    hello = (User("Hello."),)
    counts = []
    for asked in (Ask(hello), Ask(hello, system="Be brief."), Ask(hello, system="Be brief.", tools=(WEATHER,))):
        body = asked.body("messages", probe.client.model, False)
        for name in ("max_tokens", "stream", "temperature"):
            body.pop(name, None)
        exchange = probe.client.send("messages", "POST", "/messages/count_tokens", body)
        probe.answer(exchange)
        counted = (exchange.json() or {}).get("input_tokens")
        probe.expect("AN23", isinstance(counted, int) and counted > 0, "input_tokens", counted, exchange)
        used = probe.ask(asked, stream=False)
        probe.expect("AN23", counted == used.counts.prompt, used.counts.prompt, counted, exchange)
        counts.append(counted if isinstance(counted, int) else 0)
    probe.expect("K8", counts[0] < counts[1] < counts[2], "more with a system prompt, more again with a tool", counts)


@TABLE.scenario("input-tokens", "count_tokens", "X6", ("responses",), is_optional=True)
def input_tokens(probe: Probe) -> None:
    """/responses/input_tokens equals the usage of the same request."""
    asked = Ask((User("Hello."),), system="Be brief.", tools=(WEATHER,))
    body = asked.body("responses", probe.client.model, False)
    for name in ("stream", "store", "temperature", "max_output_tokens"):
        body.pop(name, None)
    exchange = probe.client.send("responses", "POST", "/responses/input_tokens", body)
    probe.answer(exchange)
    used = probe.ask(asked, stream=False)

    counted = (exchange.json() or {}).get("input_tokens")
    probe.expect("X6", counted == used.counts.prompt, used.counts.prompt, counted, exchange)


@TABLE.scenario("repeated-prompt", "cache", "X5 C10 AN13")
def repeated_prompt(probe: Probe) -> None:
    """The same long prompt twice: the same total, and something of it cached the second time, never all of it."""
    extra = {"prompt_cache_key": "conformance"} if probe.protocol == "responses" else {}
    question = Ask((User(f"{_LONG} What does the cache keep?"),), max_tokens=24, extra=extra)
    first, second = probe.ask(question), probe.ask(question)
    prompt, cached = second.counts.prompt, second.counts.cached

    probe.expect("X5", first.counts.prompt == prompt, first.counts.prompt, prompt, second.exchange, "prompt total")
    if probe.protocol == "messages":
        probe.expect(
            "AN13",
            first.counts.prompt == prompt,
            f"the three input counts add up to {first.counts.prompt}",
            prompt,
            second.exchange,
        )
    probe.need(cached is not None, "cached tokens are not reported")
    for rule in ("X5", "C10") if probe.protocol == "responses" else ("X5",):
        is_some = bool(cached) and (cached or 0) < (prompt or 0)
        probe.expect(rule, is_some, f"more than 0, less than {prompt}", cached, second.exchange, "cached")


@TABLE.scenario("cache-counters", "cache", "AN12 AN13", ("messages",))
def cache_counters(probe: Probe) -> None:
    """Read, written and neither add up to the same prompt in every answer, streamed and not."""
    question = Ask((User(f"{_LONG} One word, please."),), system="Be brief.", system_as_parts=True, max_tokens=16)
    answers = [probe.ask(question), probe.ask(question), probe.ask(question, stream=False)]
    totals = [answer.counts.prompt for answer in answers]

    probe.expect("AN13", len(set(totals)) == 1, f"{totals[0]} each time", totals, answers[-1].exchange)


@TABLE.scenario("cold-equals-cached", "cache", "X8", is_optional=True)
def cold_equals_cached(probe: Probe) -> None:
    """Greedy text (and log probabilities, where told) do not depend on the cache."""
    extra = {"logprobs": True, "top_logprobs": 1} if probe.protocol == "chat" else {}
    question = Ask((User(f"{_LONG} Summarise in ten words."),), max_tokens=32, extra=extra)
    cold, cached = probe.ask(question, stream=False), probe.ask(question, stream=False)

    probe.need(cached.counts.cached, "nothing was cached")
    probe.expect("X8", cold.text == cached.text, cold.text, cached.text, cached.exchange, "text")
    if probe.protocol == "chat":
        told = [_logprobs(answer) for answer in (cold, cached)]
        probe.expect("X8", told[0] == told[1], told[0], told[1], cached.exchange, "log probabilities")


@TABLE.scenario("three-protocols", "text", "X2", ("chat",))
def three_protocols(probe: Probe) -> None:
    """The same question in all three protocols: where texts agree, counts must. Messages think only when asked to (AN17), so the
    others are asked not to, where they take that."""
    asked = ask("Say hello in five words.", max_tokens=32)
    unthinking: dict[str, dict[str, Any]] = {"chat": {"reasoning_effort": "none"}, "responses": {"reasoning": {"effort": "none"}}}
    answers = []
    for protocol in ("chat", "responses", "messages"):
        body = asked.body(protocol, probe.client.model, False)
        exchange = probe.client.ask(protocol, {**body, **unthinking.get(protocol, {})})
        if exchange.status == 400 and protocol in unthinking:
            exchange = probe.client.ask(protocol, body)
        exchange.is_evidence = exchange.status in NOT_SERVED
        probe.need(exchange.status == 200, f"{protocol} is not served")
        inner = Probe(probe.client, protocol, probe.profile, True)
        answers.append(inner.answer(exchange))
    probe.need(len({answer.text for answer in answers}) == 1, "the texts differ: not deterministic, or other templates")
    counts = [(answer.counts.prompt, answer.counts.completion, answer.end) for answer in answers]
    probe.expect("X2", len(set(counts)) == 1, counts[0], counts, answers[-1].exchange)


def _logprobs(answer: Answer) -> list[object]:
    return [(entry.get("token"), entry.get("logprob")) for entry in answer.logprobs]
