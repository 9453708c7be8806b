"""Tools: who may call what, how often, with which arguments, and what the next turn makes of it."""

from __future__ import annotations

import jsonschema

from conformance.checker.answer import Answer
from conformance.checker.dialogue import PING, TIME, WEATHER, Ask, Result, Said, User, ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table

TABLE = Table()
_RULE = {"chat": "CH24", "responses": "RS22", "messages": "AN20"}
_QUESTION = "What is the weather in Paris? Use the tool."


@TABLE.scenario("tool-choice", "tools", "CH24 RS22 AN20 CH14 CH15", is_optional=True)
def tool_choice(probe: Probe) -> None:
    """auto, required, named and none: what is forbidden never happens, what is demanded always does."""
    tools = (WEATHER, TIME)
    required = probe.ask(ask(_QUESTION, tools=tools, tool_choice="required", max_tokens=256))
    named = probe.ask(ask(_QUESTION, tools=tools, tool_choice="get_time", max_tokens=256))
    none = probe.ask(ask(_QUESTION, tools=tools, tool_choice="none"))
    auto = probe.ask(ask(_QUESTION, tools=tools, tool_choice="auto", max_tokens=256))
    rule = _RULE[probe.protocol]

    probe.expect(rule, len(required.calls) >= 1, "at least one call", required.text, required.exchange, "tool_choice required")
    probe.expect(
        rule, {call.name for call in named.calls} == {"get_time"}, "get_time", named.calls, named.exchange, "tool_choice named"
    )
    probe.expect(rule, not none.calls, "no call", none.calls, none.exchange, "tool_choice none")
    for answer in (required, named, auto):
        _check_calls(probe, answer, {"get_weather": WEATHER, "get_time": TIME})


@TABLE.scenario("tools-unary", "tools", "CH14 X1", is_optional=True)
def tools_unary(probe: Probe) -> None:
    """A demanded call streamed and not: the same name and arguments."""
    question = ask(_QUESTION, tools=(WEATHER,), tool_choice="required", max_tokens=256)
    streamed, first, second = probe.ask(question), probe.ask(question, stream=False), probe.ask(question, stream=False)

    probe.need(not first.was_cut(256), "the call was cut by the token limit")
    for answer in (streamed, first):
        probe.expect(_RULE[probe.protocol], bool(answer.calls), "at least one call", answer.text, answer.exchange)
        _check_calls(probe, answer, {"get_weather": WEATHER})
    probe.need(_calls_of(first) == _calls_of(second), "two equal unary requests got different calls")
    probe.expect("X1", _calls_of(streamed) == _calls_of(first), _calls_of(first), _calls_of(streamed), streamed.exchange)


@TABLE.scenario("no-argument-tool", "tools", "CH14 RS9 K6 AN7", is_optional=True)
def no_argument_tool(probe: Probe) -> None:
    """A tool without parameters is called with an empty object."""
    answer = probe.ask(ask("Check the line with the tool.", tools=(PING,), tool_choice="required", max_tokens=128))

    probe.expect(_RULE[probe.protocol], bool(answer.calls), "at least one call", answer.text, answer.exchange)
    for call in answer.calls:
        value = call.value()
        if probe.protocol == "messages":
            probe.expect("K6", value == {}, {}, call.arguments, answer.exchange)
        else:
            rule = {"chat": "CH14", "responses": "RS9"}[probe.protocol]
            probe.expect(rule, isinstance(value, dict), "an object", call.arguments, answer.exchange)
            probe.need(value == {}, f"the model gave arguments to a tool that takes none (not strict): {call.arguments}")


@TABLE.scenario("parallel-tools", "tools", "C14 K5 CH10 CH11 CH24", is_optional=True)
def parallel_tools(probe: Probe) -> None:
    """Two calls in one answer have places and ids of their own; switched off, there is one at most."""
    text = "Use the tool twice in one go: the weather in Paris and the weather in Rome."
    single = probe.ask(ask(text, tools=(WEATHER,), tool_choice="required", is_parallel=False, max_tokens=256))
    probe.expect(_RULE[probe.protocol], len(single.calls) <= 1, "one call at most", len(single.calls), single.exchange)

    answer = probe.ask(ask(text, tools=(WEATHER,), tool_choice="required", is_parallel=True, max_tokens=384))
    ids = [call.id for call in answer.calls]
    probe.need(len(ids) >= 2, "the model made one call only")
    rule = {"chat": "CH11", "responses": "C14", "messages": "K5"}[probe.protocol]
    probe.expect(rule, len(set(ids)) == len(ids), "ids of their own", ids, answer.exchange)


@TABLE.scenario("tool-result", "tools", "X7 X12", is_optional=True)
def tool_result(probe: Probe) -> None:
    """The second turn: the call and its result come back and are accepted; ids never collide."""
    question = Ask((User(_QUESTION),), tools=(WEATHER,), tool_choice="required", max_tokens=256)
    first = probe.ask(question)
    probe.need(first.calls and not first.was_cut(256), "no whole call came")
    results = tuple(Result(call, "sunny, 21 degrees") for call in first.calls)
    second = probe.ask(Ask((User(_QUESTION), Said(first), *results), tools=(WEATHER,), max_tokens=128))
    again = probe.ask(question)

    probe.need(second.text or second.calls, "the second turn said nothing")
    if None not in (second.counts.prompt, first.counts.prompt):
        probe.expect(
            "X7", (second.counts.prompt or 0) > (first.counts.prompt or 0), "a longer prompt", second.counts, second.exchange
        )
    ids = {call.id for call in first.calls} & {call.id for call in again.calls}
    probe.expect("X12", not ids, "ids that differ between answers", sorted(ids), again.exchange)


@TABLE.scenario("tool-echo", "cache", "X7", is_optional=True)
def tool_echo(probe: Probe) -> None:
    """Does the turn after a tool call still hit all of the turn before it?"""
    system = "You are a careful assistant. " + "Rule: answer briefly and truthfully. " * 40
    first = probe.ask(Ask((User(_QUESTION),), system=system, tools=(WEATHER,), tool_choice="required", max_tokens=256))
    probe.need(first.calls and not first.was_cut(256), "no whole call came")
    results = tuple(Result(call, "sunny") for call in first.calls)
    second = probe.ask(Ask((User(_QUESTION), Said(first), *results), system=system, tools=(WEATHER,), max_tokens=64))

    probe.need(first.counts.prompt and second.counts.cached, "no prompt or no cached tokens were reported")
    owed = (first.counts.prompt or 0) + (first.counts.completion or 0)
    missing = owed - (second.counts.cached or 0)
    probe.expect("X7", missing <= 2, f"about {owed} cached tokens: all of turn one", second.counts.cached, second.exchange)


def _check_calls(probe: Probe, answer: Answer, tools: dict[str, dict[str, object]]) -> None:
    rule = {"chat": "CH14", "responses": "RS9", "messages": "AN7"}[probe.protocol]
    for call in answer.calls:
        tool = tools.get(call.name)
        is_known = probe.expect(rule, tool is not None, sorted(tools), call.name, answer.exchange)
        if not is_known or tool is None or answer.was_cut(256):
            continue
        value = call.value()
        probe.expect(rule, isinstance(value, dict), "an object", call.arguments, answer.exchange)
        fits = jsonschema.Draft202012Validator(tool["schema"]).is_valid(value)  # type: ignore[arg-type]
        probe.need(fits, f"the model's arguments do not fit the schema (not strict): {call.arguments}")


def _calls_of(answer: Answer) -> list[tuple[str, object]]:
    return [(call.name, call.value()) for call in answer.calls]
