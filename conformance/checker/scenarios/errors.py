"""What must be refused: with which status, in whose words, and the same streamed or not."""

from __future__ import annotations

from typing import Any, Final

from conformance.checker.client import Exchange
from conformance.checker.dialogue import WEATHER, ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table
from conformance.checker.verdict import StopError, Verdict

TABLE = Table()
_OTHER_TYPES: Final[tuple[Any, ...]] = ("text", 7, -1.5, True, [], ["x"], [7], {}, {"type": 7})
_LIST: Final = {"chat": "messages", "responses": "input", "messages": "messages"}


@TABLE.scenario("malformed-json", "errors", "E1 E2 E5 T6")
def malformed_json(probe: Probe) -> None:
    """A body that is no JSON."""
    probe.refuse(probe.client.ask(probe.protocol, '{"model": '), 400)


@TABLE.scenario("missing-field", "errors", "E1 E2 E5 AN21")
def missing_field(probe: Probe) -> None:
    """A required field is absent."""
    for name in ("model", _LIST[probe.protocol], *(["max_tokens"] if probe.protocol == "messages" else [])):
        _refuse_both(probe, name, lambda body, name=name: body.pop(name), 400, is_there=False)


@TABLE.scenario("wrong-type", "errors", "E1 E2 E4 E5 T6")
def wrong_type(probe: Probe) -> None:
    """A field has a type or value that it cannot have."""
    limit = "max_output_tokens" if probe.protocol == "responses" else "max_tokens"
    for name, value in (("temperature", "hot"), (limit, -1), (_LIST[probe.protocol], 7)):
        _refuse_both(probe, name, lambda body, name=name, value=value: body.update({name: value}), 400)


@TABLE.scenario("retyped-fields", "errors", "E1 E2 E3")
def retyped_fields(probe: Probe) -> None:
    """Each field of a rich request, one at a time, with values of other types: refused or ignored, never a crash."""
    rich = ask("Hello.", system="Be brief.", tools=(WEATHER,), max_tokens=16).body(probe.protocol, probe.client.model, False)
    for name in rich:
        for value in _OTHER_TYPES:
            if type(value) is type(rich[name]):
                continue
            exchange = probe.client.ask(probe.protocol, {**rich, name: value})
            told = f"{exchange.status} for {name} = {value!r}"
            probe.expect("E1", 200 <= exchange.status < 500, "200 or 4xx", told, exchange)


@TABLE.scenario("empty-messages", "errors", "E1 E2 E5 AN21", ("chat", "messages"))
def empty_messages(probe: Probe) -> None:
    """No message at all."""
    _refuse_both(probe, "messages", lambda body: body.update(messages=[]), 400, is_there=False)


@TABLE.scenario("unknown-model", "errors", "E1 E2 E5")
def unknown_model(probe: Probe) -> None:
    """A model that is not served: 404 (OpenAI's Responses says 400)."""
    allowed = (404, 400) if probe.protocol == "responses" else (404,)
    _refuse_both(probe, "model", lambda body: body.update(model="no-such-model-here"), *allowed)


@TABLE.scenario("context-overflow", "errors", "E1 E2 E5 T6 C12")
def context_overflow(probe: Probe) -> None:
    """A prompt longer than any context: refused before the first token, by name."""
    exchanges = _refuse_both(
        probe, "", lambda body: body.update({_LIST[probe.protocol]: [{"role": "user", "content": "word " * 1_500_000}]}), 400, 413
    )
    if probe.protocol != "messages":
        for exchange in exchanges:
            code = ((exchange.json() or {}).get("error") or {}).get("code")
            probe.expect(
                "C12", code == "context_length_exceeded" or exchange.status == 413, "code context_length_exceeded", code, exchange
            )
    for exchange in exchanges:
        exchange.request = {"model": probe.client.model, "note": "a prompt of 1,500,000 words"}


@TABLE.scenario("huge-limit", "errors", "K11", ("messages",))
def huge_limit(probe: Probe) -> None:
    """max_tokens beyond any context: clamped, or refused by a clean 400. The answer itself is not waited for."""
    body = ask("Say hello.", max_tokens=100_000_000).body("messages", probe.client.model, True)
    exchange = probe.client.send("messages", "POST", "/messages", body, stop_after_bytes=1)
    probe.expect("K11", exchange.status in (200, 400), "200 or 400", exchange.status, exchange)


@TABLE.scenario("wrong-method", "errors", "E1 E6")
def wrong_method(probe: Probe) -> None:
    """GET where only POST is meant, and a path that is not there."""
    path = {"chat": "/chat/completions", "messages": "/messages"}.get(probe.protocol, "/responses/input_tokens")
    probe.refuse(probe.client.send(probe.protocol, "PUT", path, {}), 405, 404)
    missing = probe.client.send(
        probe.protocol, "POST", {"messages": "/messages/no-such-path"}.get(probe.protocol, "/no-such-path"), {}
    )
    probe.expect(
        "E6", missing.status == 404 and isinstance(missing.json(), dict), "404 with a JSON body", missing.status, missing
    )


@TABLE.scenario("bad-key", "errors", "E1 E2")
def bad_key(probe: Probe) -> None:
    """A wrong key is 401, and so is none. Only where the target asks for one."""
    name = "x-api-key" if probe.protocol == "messages" else "authorization"
    headers = {name: "wrong" if probe.protocol == "messages" else "Bearer wrong"}
    body = ask("Hello.").body(probe.protocol, probe.client.model, True)
    exchange = probe.client.ask(probe.protocol, body, headers=headers)
    if exchange.status == 200 and not probe.client.api_key:
        raise StopError(Verdict.UNPROVEN, "the target lets every key in; with --api-key it can be judged")
    probe.refuse(exchange, 401, 403)
    if probe.client.api_key:
        probe.refuse(probe.client.ask(probe.protocol, body, headers={name: None}), 401, 403)


@TABLE.scenario("models", "models", "K14", ("chat", "messages"))
def models(probe: Probe) -> None:
    """The list of models, in the caller's protocol."""
    exchange = probe.client.send(probe.protocol, "GET", "/models")
    probe.answer(exchange)
    body = exchange.json() or {}
    rows = body.get("data") or []
    probe.expect(
        "K14",
        any(row.get("id") == probe.client.model for row in rows),
        probe.client.model,
        [row.get("id") for row in rows],
        exchange,
    )
    if probe.protocol == "messages":
        shape = bool(rows) and rows[0].get("type") == "model" and "has_more" in body
        probe.expect("K14", shape, "type model, has_more", body, exchange, "Anthropic's shape")
    else:
        shape = body.get("object") == "list" and bool(rows) and rows[0].get("object") == "model"
        probe.expect("K14", shape, "object list of object model", body, exchange, "OpenAI's shape")


@TABLE.scenario("head-root", "errors", "K13", ("messages",))
def head_root(probe: Probe) -> None:
    """HEAD / before the first request, as Claude Code sends it, does not crash the server."""
    exchange = probe.client.send("messages", "HEAD", "/", at_root=True)
    probe.expect("K13", exchange.status < 500, "below 500", exchange.status, exchange)


def _refuse_both(probe: Probe, name: str, change: Any, *allowed: int, is_there: bool = True) -> list[Exchange]:
    """The same fault unary and streamed: refused with the same status and the same error."""
    exchanges = []
    for stream in (False, True):
        body = ask("Hello.").body(probe.protocol, probe.client.model, stream)
        change(body)
        exchange = probe.client.ask(probe.protocol, body)
        probe.refuse(exchange, *allowed)
        exchanges.append(exchange)
    errors = [(one.status, _essence(one.json())) for one in exchanges]
    if max(status for status, _ in errors) >= 400:
        probe.expect("E5", errors[0] == errors[1], errors[0], errors[1], exchanges[1], name)
    if probe.protocol == "messages" and name in ("max_tokens", "messages") and not is_there:
        probe.expect("AN21", exchanges[0].status == 400, f"400: {name} is required", exchanges[0].status, exchanges[0], name)
    error = (exchanges[0].json() or {}).get("error") or {}
    if probe.protocol != "messages" and name and exchanges[0].status == 400:
        param = error.get("param")
        probe.expect("E4", isinstance(param, str) and param.startswith(name), name, param, exchanges[0], "param")
    return exchanges


def _essence(body: Any) -> object:
    error = body.get("error") if isinstance(body, dict) else body
    return {key: error.get(key) for key in ("type", "code", "param", "message")} if isinstance(error, dict) else error
