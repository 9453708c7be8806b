"""Unary answers and error bodies: their shape, their arithmetic, and whether a stream added up to the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.checker.difference import first_difference
from conformance.checker.joined import Joined, describe
from conformance.checker.laws.chat import check_chat_usage
from conformance.checker.laws.law import UNTOLD, Laws, at_path
from conformance.checker.laws.messages import check_blocks, check_cache_split, prompt_total
from conformance.checker.laws.responses import check_item_ids, check_response_usage, outline_of_response
from conformance.grammar import Violation, load_grammar
from conformance.grammar.fields import MISSING, show
from conformance.requirements import levels_for


def check_unary(protocol: str, body: object, profile: str = "default") -> list[Violation]:
    """The shape of a unary answer and the sums in it."""
    levels = levels_for(profile)
    if not isinstance(body, dict):
        return [Violation("T1", 0, "unary answer", "a JSON object", show(body), levels.get("T1", "MUST"))]
    found = [
        field.violation(body, 0, levels.get(field.rule, "MUST"))
        for field in load_grammar(protocol).unary
        if not field.accepts(body) and levels.get(field.rule) != "OFF"
    ]
    laws = Laws(levels)
    if protocol == "chat":
        if isinstance(body.get("usage"), dict):
            check_chat_usage(laws, body["usage"])
        _check_choices(laws, body.get("choices"))
    elif protocol == "responses":
        check_response_usage(laws, body)
        check_item_ids(laws, body.get("output"))
    elif isinstance(body.get("usage"), dict):
        laws.check_counts("AN12", "usage", body["usage"])
        check_cache_split(laws, body["usage"])
        _check_content(laws, body)
    return found + laws.found


def check_error_body(protocol: str, status: int, body: object, profile: str = "default") -> list[Violation]:
    """E2, E3, E7: an error answer in the protocol's own shape."""
    laws = Laws(levels_for(profile))
    error = at_path(body, "error")
    if protocol == "messages":
        for rule in ("E2", "K15"):
            if at_path(body, "type") != "error" or not isinstance(error, dict):
                laws.report(rule, f"body of {status}", '{"type": "error", "error": {"type", "message"}}', body)
            elif not isinstance(error.get("type"), str) or not isinstance(error.get("message"), str):
                laws.report(rule, f"error of {status}", "type and message as strings", error)
        if not laws.found and ("param" in error or "code" in error):
            laws.report("E7", f"error of {status}", "no param and no code: those are OpenAI's", error)
        return laws.found
    if not isinstance(error, dict) or at_path(body, "type") == "error":
        laws.report(
            "E7" if at_path(body, "type") == "error" else "E2",
            f"body of {status}",
            '{"error": {message, type, param, code}}',
            body,
        )
        return laws.found
    for name, kinds in (("message", (str,)), ("type", (str,)), ("param", (str, type(None)))):
        if name not in error or not isinstance(error[name], kinds):
            laws.report(
                "E2",
                f"error.{name} of {status}",
                "string" if len(kinds) == 1 else "string or null",
                show(error.get(name, MISSING)),
            )
    if "code" not in error or not isinstance(error["code"], (str, type(None))):
        laws.report("E3", f"error.code of {status}", "string or null", show(error.get("code", MISSING)))
    return laws.found


def compare_with_unary(protocol: str, laws: Laws, unary: dict[str, Any]) -> None:
    """X1: reports on `laws` every path where the stream and the unary answer differ."""
    told = outline_of_unary(protocol, unary)
    for path, streamed in laws.outline().items():
        if path not in told:
            if not _is_nothing(streamed):
                laws.report("X1", path, "nothing, as in the unary answer", _describe(streamed))
            continue
        value = told[path]
        if value is None and path.startswith("usage"):
            continue  # the unary answer tells no usage; its own rule says whether it should
        if streamed is UNTOLD:
            continue
        if isinstance(streamed, Joined):
            if not (streamed.equals(value) if isinstance(value, str) else streamed.length == 0 and value is None):
                laws.report(_rule_of(path), path, f"{_describe(value)}, as in the unary answer", _describe(streamed))
        elif (found := first_difference(value, streamed, path)) is not None:
            laws.report(_rule_of(path), found[0], f"{found[1]}, as in the unary answer", found[2])
    for path in told.keys() - laws.outline().keys():
        if not path.startswith("usage") and not _is_nothing(told[path]):
            laws.report("X1", path, f"{_describe(told[path])}, as in the unary answer", "nothing")


def outline_of_unary(protocol: str, body: dict[str, Any]) -> dict[str, Any]:
    if protocol == "responses":
        return outline_of_response(body)
    return _outline_of_completion(body) if protocol == "chat" else _outline_of_message(body)


def _outline_of_completion(body: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"model": body.get("model")}
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        at, message = f"choices[{at_path(choice, 'index')}]", at_path(choice, "message")
        values[f"{at}.content"] = at_path(message, "content") or ""
        values[f"{at}.reasoning"] = at_path(message, "reasoning_content") or at_path(message, "reasoning") or ""
        values[f"{at}.refusal"] = at_path(message, "refusal") or ""
        values[f"{at}.finish_reason"] = at_path(choice, "finish_reason")
        calls = at_path(message, "tool_calls") or []
        values[f"{at}.num_calls"] = len(calls)
        for number, call in enumerate(calls):
            kind, growing = ("custom", "input") if at_path(call, "type") == "custom" else ("function", "arguments")
            values[f"{at}.calls[{number}].name"] = at_path(call, kind, "name")
            values[f"{at}.calls[{number}].arguments"] = at_path(call, kind, growing)
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        values[f"usage.{name}"] = at_path(body.get("usage"), name)
    return values


def _outline_of_message(body: dict[str, Any]) -> dict[str, Any]:
    usage = body.get("usage") if isinstance(body.get("usage"), dict) else {}
    content = body.get("content") if isinstance(body.get("content"), list) else []
    assert isinstance(usage, dict)
    assert isinstance(content, list)
    values: dict[str, Any] = {
        "model": body.get("model"),
        "stop_reason": body.get("stop_reason"),
        "stop_sequence": body.get("stop_sequence"),
        "num_blocks": len(content),
        "usage.prompt": prompt_total(usage),
        "usage.output_tokens": usage.get("output_tokens"),
    }
    for index, block in enumerate(content):
        at, kind = f"content[{index}]", at_path(block, "type")
        values[f"{at}.type"] = kind
        if kind in ("text", "thinking"):
            values[f"{at}.{kind}"] = at_path(block, kind)
        elif kind == "tool_use":
            values[f"{at}.name"] = at_path(block, "name")
            values[f"{at}.input"] = at_path(block, "input")
    return values


def _check_choices(laws: Laws, choices: object) -> None:
    for number, choice in enumerate(choices if isinstance(choices, list) else ()):
        at, message = f"choices[{number}]", at_path(choice, "message")
        if at_path(choice, "index") != number:
            laws.report("CH8", f"{at}.index", number, at_path(choice, "index"))
        if at_path(choice, "finish_reason") not in ("stop", "length", "tool_calls", "content_filter", "function_call"):
            laws.report("CH7", f"{at}.finish_reason", "one of the five documented words", at_path(choice, "finish_reason"))
        if at_path(message, "role") != "assistant":
            laws.report("CH5", f"{at}.message.role", "assistant", at_path(message, "role"))
        for call in at_path(message, "tool_calls") or []:
            kind, growing = ("custom", "input") if at_path(call, "type") == "custom" else ("function", "arguments")
            if not (isinstance(at_path(call, "id"), str) and at_path(call, "id")) or at_path(call, "type") != kind:
                laws.report("CH11", f"{at}.message.tool_calls", "id and type function or custom", call)
            if not isinstance(at_path(call, kind, growing), str):
                laws.report("CH14", f"{at}.message.tool_calls", f"{growing} as a string", at_path(call, kind))


def _check_content(laws: Laws, body: Mapping[str, Any]) -> None:
    content = body.get("content")
    check_blocks(laws, content)
    kinds = [at_path(block, "type") for block in content] if isinstance(content, list) else []
    if body.get("stop_reason") == "tool_use" and "tool_use" not in kinds:
        laws.report("AN10", "stop_reason", "tool_use only with a tool_use block", kinds)
    if (body.get("stop_reason") == "stop_sequence") != (body.get("stop_sequence") is not None):
        laws.report("AN10", "stop_sequence", "set exactly for stop_reason stop_sequence", body.get("stop_sequence"))


def _rule_of(path: str) -> str:
    return "AN12" if path in ("usage.prompt", "usage.output_tokens") else "X1"


def _is_nothing(value: object) -> bool:
    return value.length == 0 if isinstance(value, Joined) else not value


def _describe(value: object) -> str:
    if isinstance(value, Joined):
        return str(value)
    return describe(value) if isinstance(value, str) else show(value)
