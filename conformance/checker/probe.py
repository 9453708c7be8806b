"""What a scenario holds in its hands: asks the target, judges every capture, collects what held and what broke."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from conformance.checker.absence import NOT_SERVED
from conformance.checker.answer import Answer, events_of, read_answer
from conformance.checker.client import Client, Exchange, TargetError
from conformance.checker.dialogue import Ask
from conformance.checker.exercise import what_was_exercised
from conformance.checker.stream_check import StreamCheck
from conformance.checker.unary_check import check_error_body, check_unary
from conformance.checker.verdict import Finding, Outcome, StopError, Verdict
from conformance.checker.websocket_check import WebSocketCheck
from conformance.grammar import Violation
from conformance.grammar.fields import show
from conformance.requirements import consequence_of, levels_for, load_requirements

_REFUSALS: Final = frozenset({400, 404, 405, 422, 501})


class Probe:
    """One scenario on one target in one protocol."""

    def __init__(self, client: Client, protocol: str, profile: str, is_optional: bool) -> None:
        self.client = client
        self.protocol = protocol
        self.profile = profile
        self.findings: list[Finding] = []
        self._is_optional = is_optional
        self._levels = levels_for(profile)
        self._judged: set[int] = set()

    def ask(self, asked: Ask, *, stream: bool = True, headers: dict[str, str] | None = None, query: str = "") -> Answer:
        """An answer with status 200. A refusal ends the scenario: unsupported where the feature is optional, else broken."""
        exchange = self.client.ask(
            self.protocol, asked.body(self.protocol, self.client.model, stream), headers=headers, query=query
        )
        return self.answer(exchange)

    def answer(self, exchange: Exchange) -> Answer:
        """Judges an exchange that should have status 200, and reads it."""
        if exchange.status != 200:
            body = exchange.json()
            if self._is_optional and exchange.status in _REFUSALS and isinstance(body, dict):
                exchange.is_evidence = exchange.status in NOT_SERVED
                raise StopError(Verdict.UNSUPPORTED, f"{exchange.status}: {_message_of(body)}")
            if exchange.status in (429, 500, 502, 503, 504, 529):
                raise StopError(Verdict.ERROR, f"{exchange.status}: {_message_of(body)}")
            self.expect("E1", False, "status 200", f"{exchange.status} {_message_of(body)}", exchange)
            raise StopError(Verdict.FAIL, f"{exchange.status}: {_message_of(body)}")
        return read_answer(exchange)

    def refuse(self, exchange: Exchange, *allowed: int) -> None:
        """E1: the exchange must be an error with one of these statuses, in the protocol's own shape."""
        self.expect("E1", exchange.status in allowed, " or ".join(map(str, allowed)), str(exchange.status), exchange)

    def expect(
        self, rule: str, holds: bool, expected: object, got: object, exchange: Exchange | None = None, where: str = ""
    ) -> bool:
        """One look at one rule. Returns whether it held."""
        self.findings.append(
            Finding(
                rule,
                self._levels.get(rule, "MUST"),
                not holds,
                where or "scenario",
                expected if isinstance(expected, str) else show(expected),
                got if isinstance(got, str) else show(got),
                consequence="" if holds else consequence_of(rule),
                curl="" if holds or exchange is None else exchange.curl(),
                trace="" if exchange is None else str(id(exchange)),
            )
        )
        return holds

    def need(self, condition: object, reason: str) -> None:
        """Ends the scenario as inconclusive where the model did not do what is needed."""
        if not condition:
            raise StopError(Verdict.INCONCLUSIVE, reason)

    def compare(self, streamed: Answer, unary: Answer) -> None:
        """X1 on two answers of the same request: the stream's laws against the unary object, the first difference told."""
        exchange = streamed.exchange
        check = StreamCheck(self.protocol, self.profile, _request_of(exchange), unary.raw)
        check.feed(exchange.body)
        rule = {"chat": "X1", "responses": "RS25", "messages": "AN22"}[self.protocol]
        check.finish()
        first = next(iter(check.differences), None)
        where = first.at if first else "scenario"
        self.expect(rule, first is None, first.expected if first else "", first.got if first else "", exchange, where)

    def judge(self, exchanges: list[Exchange]) -> None:
        """Every structural rule on every capture."""
        for exchange in exchanges:
            if id(exchange) not in self._judged and not exchange.is_evidence:
                self._judged.add(id(exchange))
                for violation in self._violations(exchange):
                    if violation.level != "OFF":
                        self.findings.append(self._finding(violation, exchange))

    def _violations(self, exchange: Exchange) -> list[Violation]:
        if exchange.frames:
            return self._websocket_violations(exchange)
        if exchange.method not in ("POST", "GET") or exchange.status == 0:
            return []
        if exchange.status >= 400:
            return check_error_body(exchange.protocol, exchange.status, exchange.json(), self.profile)
        wants_stream = isinstance(exchange.request, dict) and exchange.request.get("stream") is True
        if exchange.method == "GET" and exchange.is_stream:
            return []  # a stream picked up in the middle: its scenario judges it
        if wants_stream or exchange.is_stream:
            return self._stream_violations(exchange)
        found: list[Violation] = []
        kind = exchange.headers.get("content-type", "")
        if exchange.body and not kind.startswith("application/json"):
            found.append(self._violation("T1", "content-type", "application/json", kind))
        is_generation = exchange.method == "POST" and exchange.url.split("?")[0].endswith(
            ("/completions", "/responses", "/messages")
        )
        return found + (check_unary(exchange.protocol, exchange.json(), self.profile) if is_generation else [])

    def _stream_violations(self, exchange: Exchange) -> list[Violation]:
        if not exchange.is_stream:
            return [self._violation("T1", "content-type", "text/event-stream", exchange.headers.get("content-type", "nothing"))]
        check = StreamCheck(exchange.protocol, self.profile, _request_of(exchange))
        check.feed(exchange.body)
        found = check.finish() if not exchange.was_cut_by_us else check.violations
        if "x-conformance-broken" in exchange.headers:
            found.append(self._violation("T2", "body", "a body that ends", exchange.headers["x-conformance-broken"]))
        return found

    def _websocket_violations(self, exchange: Exchange) -> list[Violation]:
        check = WebSocketCheck(self.profile)
        for frame in exchange.frames:
            check.observe(json.dumps(frame))
        return check.finish() if not exchange.was_cut_by_us else check.violations

    def _violation(self, rule: str, at: str, expected: str, got: str) -> Violation:
        return Violation(rule, 0, at, expected, got, self._levels.get(rule, "MUST"))

    def _finding(self, violation: Violation, exchange: Exchange) -> Finding:
        return Finding(
            violation.rule,
            violation.level,
            True,
            violation.at,
            violation.expected,
            violation.got,
            violation.event,
            _raw_event(exchange, violation.event),
            consequence_of(violation.rule),
            str(id(exchange)),
            exchange.curl(),
        )


def run_probe(
    scenario: Callable[[Probe], None],
    client: Client,
    protocol: str,
    profile: str,
    feature: str,
    name: str,
    is_optional: bool,
    folder: Path | None,
    known_rules: frozenset[str] = frozenset(),
) -> Outcome:
    """Runs a scenario, judges its captures, keeps its traces, and gives the verdict. Known rules are told and not counted."""
    probe = Probe(client, protocol, profile, is_optional)
    client.take_exchanges()
    began = time.monotonic()
    verdict, reason = Verdict.PASS, ""
    try:
        scenario(probe)
    except StopError as stop:
        verdict, reason = stop.verdict, stop.reason
    except TargetError as error:
        verdict, reason = Verdict.ERROR, str(error)
    exchanges = client.take_exchanges()
    probe.judge(exchanges)
    must = [one for one in probe.findings if one.is_broken and one.level == "MUST"]
    broken = [one for one in must if one.rule not in known_rules]
    if broken and verdict is not Verdict.ERROR:
        verdict = Verdict.FAIL
        first = broken[0]
        reason = f"{first.rule}: {first.where}: got {first.got}, allowed {first.expected}"
    elif verdict is Verdict.FAIL:
        verdict, reason = Verdict.INCONCLUSIVE, f"a rule that is known to fail stood in the way: {reason}"
    outcome = Outcome(name, protocol, feature, verdict, reason, probe.findings, [], time.monotonic() - began)
    _add_structural(outcome, protocol, exchanges, probe)
    _keep_traces(outcome, exchanges, folder)
    return outcome


def _add_structural(outcome: Outcome, protocol: str, exchanges: list[Exchange], probe: Probe) -> None:
    """The rules that every capture was judged by and that held. A rule that nothing exercised is not among them."""
    seen = what_was_exercised(protocol, exchanges)
    broken = {one.rule for one in outcome.broken}
    families = {"chat": ("CH",), "responses": ("RS", "WS"), "messages": ("AN", "K")}[protocol]
    for rule in load_requirements().values():
        if rule.check not in ("grammar", "law", "transport", "unary") or rule.id in broken:
            continue
        if rule.id.rstrip("0123456789") not in (*families, "T", "E") or (rule.protocols and protocol not in rule.protocols):
            continue
        if seen.isdisjoint(rule.needs.split("|")):
            continue
        outcome.findings.append(Finding(rule.id, probe._levels.get(rule.id, rule.level), False, "capture"))


def _keep_traces(outcome: Outcome, exchanges: list[Exchange], folder: Path | None) -> None:
    """Saves each exchange, and puts its file where the findings named it."""
    names = {str(id(exchange)): f"{number:02d}" for number, exchange in enumerate(exchanges)}
    paths: dict[str, str] = {}
    if folder is not None:
        for exchange in exchanges:
            name = names[str(id(exchange))]
            saved = Path(exchange.save(folder / "traces" / outcome.protocol / outcome.scenario, name))
            paths[str(id(exchange))] = str(saved.relative_to(folder))
    outcome.traces = list(paths.values())
    outcome.findings = [_with_trace(one, paths.get(one.trace, "")) for one in outcome.findings]


def _with_trace(finding: Finding, trace: str) -> Finding:
    return Finding(
        finding.rule, finding.level, finding.is_broken, finding.where, finding.expected, finding.got, finding.event, finding.raw,
        finding.consequence, trace, finding.curl,
    )  # fmt: skip


def _request_of(exchange: Exchange) -> dict[str, Any] | None:
    return exchange.request if isinstance(exchange.request, dict) else None


def _raw_event(exchange: Exchange, number: int) -> str:
    """The data of the event at fault."""
    if number < 1:
        return exchange.body[:400].decode(errors="replace")
    if exchange.frames:
        return json.dumps(exchange.frames[number - 1], ensure_ascii=False)[:600] if number <= len(exchange.frames) else ""
    for place, event in enumerate(events_of(exchange), 1):
        if place == number:
            return json.dumps(event, ensure_ascii=False)[:600]
    return exchange.body[-200:].decode(errors="replace")


def _message_of(body: object) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message if message is not None else body)[:300]
