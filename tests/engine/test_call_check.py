"""What no mask holds is judged when a call is finished, before its end is sent; a strict server refuses instead, beforehand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.conversation import Answer, ask, json_object, new_engine, request
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import FinishReason, ToolArgumentsDelta, ToolCallFinished, ToolCallStarted
from zllm_ref.canonical.request import CustomTool, FunctionTool, Protocol
from zllm_ref.config import ServerSettings
from zllm_ref.dialect.registry import dialect_names
from zllm_ref.engine import Engine
from zllm_ref.engine.call_check import CallCheck
from zllm_ref.fence import FenceCompiler
from zllm_ref.server import create_app
from zllm_ref.tokenizer import byte_vocabulary

UNEVEN = {"type": "object", "properties": {"n": {"type": "integer", "not": {"const": 3}}}, "required": ["n"]}
"""`not` cannot be held while generating."""
TOOL = FunctionTool("pick", parameters=json_object(UNEVEN))
COMPILER = FenceCompiler(byte_vocabulary())
LARK = CustomTool("run", grammar=("lark", 'start: "add " NUMBER\nNUMBER: /[0-9]+/\n'))


def script(*numbers: int) -> dict[str, Any]:
    return {"answers": [{"segments": [{"call": {"name": "pick", "arguments": {"n": n}}} for n in numbers]}]}


def answer_to(tmp_path: Path, *numbers: int, dialect: str | None = None) -> Answer:
    engine = new_engine(script=script(*numbers), directory=tmp_path, dialect=dialect)
    try:
        return ask(engine, request("go", tools=(TOOL,)))
    finally:
        engine.close()


@pytest.mark.parametrize("dialect", dialect_names())
def test_a_call_that_breaks_an_unheld_rule_never_ends_and_does_not_end_the_answer(dialect: str, tmp_path: Path) -> None:
    right, wrong = answer_to(tmp_path, 4, dialect=dialect), answer_to(tmp_path, 3, dialect=dialect)

    assert [event.arguments for event in right.of(ToolCallFinished)] == ['{"n": 4}']
    assert right.finished.reason is FinishReason.TOOL_CALLS
    assert [event.name for event in wrong.of(ToolCallStarted)] == ["pick"]
    assert "".join(event.text for event in wrong.of(ToolArgumentsDelta)).startswith('{"n": 3')
    assert wrong.of(ToolCallFinished) == []
    assert wrong.finished.reason is FinishReason.END
    assert wrong.text() == ""


def test_beside_an_invalid_call_a_valid_one_is_no_reason_to_carry_calls_out(tmp_path: Path) -> None:
    answer = answer_to(tmp_path, 4, 3)

    assert [event.ordinal for event in answer.of(ToolCallFinished)] == [0]
    assert answer.finished.reason is FinishReason.END


def test_under_the_strict_policy_the_request_is_refused_with_the_path_before_anything_starts() -> None:
    engine = new_engine(fence_policy="strict")
    answer = Answer()
    try:
        with pytest.raises(ApiError) as refused:
            engine.submit(request("go", tools=(TOOL,)), answer)
    finally:
        engine.close()

    assert refused.value.kind is ErrorKind.INVALID_VALUE
    assert refused.value.param == "tools[0].parameters.properties.n.not"
    assert answer.events == []


# over HTTP


def body(protocol: Protocol, stream: bool) -> tuple[str, dict[str, Any]]:
    said = [{"role": "user", "content": "go"}]
    common: dict[str, Any] = {"model": "scripted", "stream": stream}
    match protocol:
        case Protocol.CHAT:
            function = {"type": "function", "function": {"name": "pick", "parameters": UNEVEN}}
            return "/v1/chat/completions", {**common, "messages": said, "tools": [function]}
        case Protocol.RESPONSES:
            tool = {"type": "function", "name": "pick", "parameters": UNEVEN, "strict": False}
            return "/v1/responses", {**common, "input": said, "tools": [tool]}
        case Protocol.MESSAGES:
            return "/v1/messages", {
                **common, "max_tokens": 500, "messages": said, "tools": [{"name": "pick", "input_schema": UNEVEN}],
            }  # fmt: skip


async def post(engine: Engine, protocol: Protocol, *, stream: bool) -> httpx.Response:
    transport = httpx.ASGITransport(app=create_app(engine, ServerSettings()))
    path, sent = body(protocol, stream)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post(path, json=sent, headers={"anthropic-version": "2023-06-01"})


ENDS = {
    Protocol.CHAT: (r'"finish_reason": ?"(\w+)"', "stop", "tool_calls"),
    Protocol.RESPONSES: (r'"type": ?"function_call"[^}]*"status": ?"(\w+)"', "incomplete", "completed"),
    Protocol.MESSAGES: (r'"stop_reason": ?"(\w+)"', "end_turn", "tool_use"),
}


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("number", [3, 4])
async def test_streamed_and_whole_answers_end_alike_in_every_protocol(protocol: Protocol, number: int, tmp_path: Path) -> None:
    engine = new_engine(script=script(number), directory=tmp_path)
    try:
        streamed, whole = [await post(engine, protocol, stream=stream) for stream in (True, False)]
    finally:
        engine.close()

    pattern, wrong, right = ENDS[protocol]
    last = [re.findall(pattern, answer.text)[-1] for answer in (streamed, whole)]
    assert streamed.status_code == whole.status_code == 200
    assert last == [wrong if number == 3 else right] * 2, (streamed.text, whole.text)


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("stream", [True, False])
async def test_a_strict_server_answers_400_with_the_path_before_the_first_byte_of_a_stream(
    protocol: Protocol, stream: bool
) -> None:
    engine = new_engine(fence_policy="strict")
    try:
        answer = await post(engine, protocol, stream=stream)
    finally:
        engine.close()

    assert answer.status_code == 400
    assert "properties.n.not" in answer.text
    assert answer.headers["content-type"].startswith("application/json")


# the judge itself


def problem(schema: dict[str, Any], value: object) -> str | None:
    tool = FunctionTool("f", parameters=json_object({"type": "object", "properties": {"v": schema}}))
    return CallCheck((tool,), COMPILER).problem_of(None, "f", json.dumps({"v": value}))


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"not": {"const": 3}}, 4, 3),
        ({"type": "array", "uniqueItems": True}, [1, 2], [1, 1]),
        ({"type": "string", "format": "ipv4"}, "127.0.0.1", "127.0.0.300"),
        ({"if": {"minimum": 5}, "then": {"multipleOf": 5}}, 10, 7),
        ({"properties": {"pattern": {"maxLength": 1}}, "dependentRequired": {"a": ["b"]}}, {"pattern": "x"}, {"pattern": "xy"}),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1.5, 1),
        ({"contains": {"const": 1}}, [2, 1], [2]),
        ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
    ],
    ids=str,
)
def test_the_judge_tells_right_from_wrong(schema: dict[str, Any], right: object, wrong: object) -> None:
    assert problem(schema, right) is None
    assert "$.v" in (problem(schema, wrong) or "")


def test_a_clients_expression_is_never_run_and_its_reference_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", asked.append)
    honest = re.search

    def search(pattern: Any, text: str, flags: int = 0) -> Any:
        if pattern == "^(a+)+$":  # it would take longer than anybody waits
            asked.append(pattern)
            return None
        return honest(pattern, text, flags)

    monkeypatch.setattr(re, "search", search)

    assert problem({"pattern": "^(a+)+$", "not": {"const": 1}}, "a" * 40 + "!") is None
    assert problem({"patternProperties": {"^(a+)+$": False}, "additionalProperties": False}, {"a" * 40 + "!": 1}) is None
    assert problem({"$ref": "http://127.0.0.1:9/schema.json"}, 1) is None

    assert asked == []


@pytest.mark.parametrize(("text", "is_right"), [("add 12", True), ("add x", False), ("add 12 ", False), ("", False)])
def test_a_free_form_input_is_judged_by_its_lark_grammar(text: str, is_right: bool) -> None:
    assert (CallCheck((LARK,), COMPILER).problem_of(None, "run", text) is None) == is_right


@pytest.mark.parametrize(("text", "is_right"), [("12-ab", True), ("12-AB", False), ("12-ab\n", False)])
def test_a_free_form_input_is_judged_by_its_expression(text: str, is_right: bool) -> None:
    tool = CustomTool("run", grammar=("regex", "[0-9]+-[a-z]+"))

    assert (CallCheck((tool,), COMPILER).problem_of(None, "run", text) is None) == is_right


@pytest.mark.parametrize("dialect", ["chatml-hermes", "dsml-v4"])
@pytest.mark.parametrize(("said", "ends"), [("add 12", FinishReason.TOOL_CALLS), ("add x", FinishReason.END)])
def test_a_lark_grammar_inside_a_json_string_is_judged_afterwards(
    dialect: str, said: str, ends: FinishReason, tmp_path: Path
) -> None:
    segments = [{"call": {"name": "run", "input": said}}]
    engine = new_engine(script={"answers": [{"segments": segments}]}, directory=tmp_path, dialect=dialect)
    try:
        answer = ask(engine, request("go", tools=(LARK, TOOL)))
    finally:
        engine.close()

    assert answer.finished.reason is ends


def custom_body(protocol: Protocol, syntax: str, definition: str, stream: bool) -> tuple[str, dict[str, Any]]:
    """Two function tools, then a free-form one."""
    grammar = {"syntax": syntax, "definition": definition}
    if protocol is Protocol.CHAT:
        first = [{"type": "function", "function": {"name": name}} for name in ("one", "two")]
        custom = {"type": "custom", "custom": {"name": "run", "format": {"type": "grammar", "grammar": grammar}}}
        chosen: dict[str, Any] = {"type": "custom", "custom": {"name": "run"}}
        said: dict[str, Any] = {"messages": [{"role": "user", "content": "go"}]}
    else:
        first = [{"type": "function", "name": name, "parameters": {}, "strict": False} for name in ("one", "two")]
        custom = {"type": "custom", "name": "run", "format": {"type": "grammar", **grammar}}
        chosen = {"type": "custom", "name": "run"}
        said = {"input": "go"}
    path = "/v1/chat/completions" if protocol is Protocol.CHAT else "/v1/responses"
    return path, {"model": "scripted", "stream": stream, **said, "tools": [*first, custom], "tool_choice": chosen}


async def post_custom(protocol: Protocol, syntax: str, definition: str, dialect: str, stream: bool = False) -> httpx.Response:
    engine = new_engine(dialect=dialect)
    try:
        transport = httpx.ASGITransport(app=create_app(engine, ServerSettings()))
        path, sent = custom_body(protocol, syntax, definition, stream)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path, json=sent)
    finally:
        engine.close()


PLACES = {Protocol.CHAT: "tools[2].custom.format.grammar.definition", Protocol.RESPONSES: "tools[2].format.definition"}


@pytest.mark.parametrize("dialect", ["chatml-hermes", "dsml-v4", "glm-4.7", "qwen3-coder"])
@pytest.mark.parametrize("protocol", PLACES)
@pytest.mark.parametrize(("syntax", "definition"), [("lark", "start: ("), ("regex", "a(")])
async def test_a_grammar_that_cannot_be_read_is_refused_with_its_path_before_the_first_byte(
    syntax: str, definition: str, protocol: Protocol, dialect: str
) -> None:
    answer = await post_custom(protocol, syntax, definition, dialect, stream=True)

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["param"] == PLACES[protocol]
    assert "got" in error["message"]
    assert "allowed" in error["message"]


@pytest.mark.parametrize("dialect", ["chatml-hermes", "dsml-v4", "glm-4.7", "qwen3-coder"])
@pytest.mark.parametrize("protocol", PLACES)
@pytest.mark.parametrize(("syntax", "definition"), [LARK.grammar, ("regex", "[0-9]{3}-[a-z]")])
async def test_without_a_script_the_input_fits_the_tools_grammar(
    syntax: str, definition: str, protocol: Protocol, dialect: str
) -> None:
    answer = (await post_custom(protocol, syntax, definition, dialect)).json()

    if protocol is Protocol.CHAT:
        assert answer["choices"][0]["finish_reason"] == "stop"  # a named tool ends so
        said = answer["choices"][0]["message"]["tool_calls"][0]["custom"]["input"]
    else:
        said = next(item["input"] for item in answer["output"] if item["type"] == "custom_tool_call")
    assert said == ("add 0" if syntax == "lark" else "000-a")


async def test_an_unheld_rule_is_refused_by_the_path_that_the_client_wrote() -> None:
    engine = new_engine(fence_policy="strict")
    try:
        params = {protocol: (await post(engine, protocol, stream=False)).json()["error"].get("param") for protocol in Protocol}
    finally:
        engine.close()

    assert params[Protocol.CHAT] == "tools[0].function.parameters.properties.n.not"
    assert params[Protocol.RESPONSES] == "tools[0].parameters.properties.n.not"
