"""What Codex and Claude Code send beyond the common ground."""

from __future__ import annotations

from typing import Any

from conformance.checker.answer import read_answer
from conformance.checker.dialogue import WEATHER, Ask, User, ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table
from conformance.checker.verdict import StopError, Verdict

TABLE = Table()
_RESPONSES = ("responses",)
_MESSAGES = ("messages",)
_PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "text"}}


@TABLE.scenario("unknown-fields", "clients", "C11 K12 T12")
def unknown_fields(probe: Probe) -> None:
    """Fields that agents add and a server may not know are ignored."""
    fields: dict[str, dict[str, Any]] = {
        "chat": {"user": "u1", "metadata": {"a": "b"}},
        "responses": {"client_metadata": {"a": "b"}, "prompt_cache_key": "k1", "access_programs": []},
        "messages": {"metadata": {"user_id": "u1"}, "context_management": {"edits": []}},
    }
    extra = fields[probe.protocol]
    exchange = probe.client.ask(
        probe.protocol, ask("Say hello.", max_tokens=16, extra=extra).body(probe.protocol, probe.client.model, True)
    )
    rule = "K12" if probe.protocol == "messages" else "C11"
    probe.expect(rule, exchange.status == 200, "200", exchange.status, exchange)


@TABLE.scenario("beta-query", "clients", "AN19 K1 K2", _MESSAGES)
def beta_query(probe: Probe) -> None:
    """?beta=true and any beta names change nothing."""
    plain = probe.ask(ask("Say hello.", max_tokens=24), stream=False)
    headers = {"anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,some-beta-of-2099-01-01"}
    body = ask("Say hello.", max_tokens=24).body("messages", probe.client.model, False)
    exchange = probe.client.ask("messages", body, headers=headers, query="?beta=true")
    for rule in ("AN19", "K2"):
        probe.expect(rule, exchange.status == 200, "200", exchange.status, exchange)
    if exchange.status == 200:
        counts = read_answer(exchange).counts
        probe.expect("K1", counts.prompt == plain.counts.prompt, plain.counts.prompt, counts.prompt, exchange)


@TABLE.scenario("thinking-budget", "clients", "AN17 K4", _MESSAGES)
def thinking_budget(probe: Probe) -> None:
    """No thinking unasked for; a bad budget is refused; adaptive and disabled are accepted."""
    plain = probe.ask(ask("How much is 2 + 2?", max_tokens=64))
    probe.expect("AN17", not plain.reasoning, "no thinking", plain.reasoning[:60], plain.exchange)
    for budget, limit in ((100, 2048), (4096, 2048)):
        extra = {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": limit, "temperature": 1}
        probe.refuse(probe.client.ask("messages", ask("Hi", extra=extra).body("messages", probe.client.model, False)), 400)
    for kind in ("disabled", "adaptive"):
        extra = {"thinking": {"type": kind}, "temperature": 1}
        exchange = probe.client.ask("messages", ask("Hi", extra=extra).body("messages", probe.client.model, True))
        probe.expect("K4", exchange.status == 200, "200", exchange.status, exchange, f"thinking {kind}")


@TABLE.scenario("billing-line", "cache", "K9", _MESSAGES)
def billing_line(probe: Probe) -> None:
    """A first system block that changes with each request does not cost the cache."""
    rules = {"type": "text", "text": "Rule: answer briefly. " * 60, "cache_control": {"type": "ephemeral"}}
    answers = []
    for number in (1, 2):
        line = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number}{number}{number};"}
        answers.append(probe.ask(ask("Say hello.", max_tokens=16, extra={"system": [line, rules]})))
    second = answers[1].counts
    probe.need(second.cached is not None, "cached tokens are not reported")
    probe.expect(
        "K9", (second.cached or 0) * 2 > (second.prompt or 0), "most of the prompt cached", second.cached, answers[1].exchange
    )


@TABLE.scenario("codex-tools", "clients", "C1 C4", _RESPONSES)
def codex_tools(probe: Probe) -> None:
    """Tool types that Codex sends are accepted, or refused by name; additional_tools counts as tools."""
    function = {"type": "function", "name": "get_weather", "description": "", "parameters": WEATHER["schema"], "strict": False}
    for tool in (
        _PATCH,
        {"type": "web_search"},
        {"type": "local_shell"},
        {"type": "namespace", "name": "mcp__files", "description": "", "tools": [function]},
    ):
        exchange = _create(probe, tools=[tool])
        message = str(((exchange.json() or {}).get("error") or {}).get("message")) if exchange.status != 200 else ""
        is_clean = exchange.status == 200 or (exchange.status == 400 and str(tool["type"]) in message)
        probe.expect("C1", is_clean, f"200, or 400 that names {tool['type']}", f"{exchange.status} {message}", exchange)
    item = {"type": "additional_tools", "role": "developer", "tools": [function]}
    turn = {"type": "message", "role": "user", "content": "What is the weather in Paris? Use the tool."}
    exchange = _create(probe, input=[item, turn], tool_choice="required", max_output_tokens=256)
    if exchange.status == 200:
        answer = read_answer(exchange)
        probe.expect("C4", bool(answer.calls), "a call", answer.text, exchange)
    else:
        probe.expect("C4", False, "200", exchange.status, exchange)


@TABLE.scenario("unknown-tool-type", "clients", "RS23", _RESPONSES)
def unknown_tool_type(probe: Probe) -> None:
    """A tool type that nobody has is refused by name."""
    exchange = _create(probe, tools=[{"type": "teleport"}])
    probe.refuse(exchange, 400)
    message = str(((exchange.json() or {}).get("error") or {}).get("message"))
    probe.expect("RS23", "teleport" in message, "the type by name", message, exchange)


@TABLE.scenario("custom-tool", "clients", "C3 RS9", _RESPONSES, is_optional=True)
def custom_tool(probe: Probe) -> None:
    """A custom tool's input is raw text, and its output is accepted."""
    answer = probe.answer(_create(probe, tools=[_PATCH], tool_choice="required", max_output_tokens=256))
    probe.need(answer.calls, "the custom tool was not called")
    told = [(call.kind, call.name) for call in answer.calls]
    probe.expect(
        "C3", set(told) == {("custom_tool_call", "apply_patch")}, ("custom_tool_call", "apply_patch"), told, answer.exchange
    )


@TABLE.scenario("namespace-tools", "clients", "RS24 C2", _RESPONSES, is_optional=True)
def namespace_tools(probe: Probe) -> None:
    """A namespaced tool is called by its short name with the namespace apart, and the pair comes back."""
    inner = {
        "type": "function",
        "name": "read",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    tools = [{"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": [inner]}]
    answer = probe.answer(_create(probe, tools=tools, tool_choice="required", max_output_tokens=256))
    probe.need(answer.calls, "no call came")
    told = [(call.name, call.namespace) for call in answer.calls]
    probe.expect("RS24", told[0] == ("read", "mcp__files"), ("read", "mcp__files"), told[0], answer.exchange)
    outputs = [{"type": "function_call_output", "call_id": call.id, "output": "text"} for call in answer.calls]
    turn = {"type": "message", "role": "user", "content": "Read."}
    exchange = _create(probe, tools=tools, input=[turn, *answer.raw["output"], *outputs])
    probe.expect("C2", exchange.status == 200, "200", exchange.status, exchange)


@TABLE.scenario("split-invariance", "scripted", "CH23 X4")
def split_invariance(probe: Probe) -> None:
    """Any grouping of tokens into engine steps gives the same answer. Targets that say how: header `x-tokens-per-step`."""
    answers = []
    for size in (1, 2, 3, 7, 64):
        question = ask("What is the weather in Paris? Use the tool.", tools=(WEATHER,), tool_choice="required", max_tokens=128)
        answer = probe.ask(question, headers={"x-tokens-per-step": str(size)})
        if answer.exchange.headers.get("x-tokens-per-step") != str(size):
            raise StopError(Verdict.UNPROVEN, "the target does not take x-tokens-per-step: it cannot be told how tokens arrive")
        answers.append(answer)
    told = [
        (answer.text, answer.reasoning, [(call.name, call.arguments) for call in answer.calls], answer.end) for answer in answers
    ]
    probe.expect("X4", all(one == told[0] for one in told), told[0], told, answers[-1].exchange)


def _create(probe: Probe, **extra: Any) -> Any:
    asked = Ask((User("Use the tool."),), max_tokens=32, extra=extra)
    return probe.client.ask("responses", asked.body("responses", probe.client.model, True))
