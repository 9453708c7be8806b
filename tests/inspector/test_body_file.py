"""Bodies out of files: whose they are, and what `explain` says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zllm_ref.__main__ import main
from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.request import Protocol
from zllm_ref.inspector.body_file import detect, read_request_body

CHAT = {"model": "m", "messages": [{"role": "system", "content": "Be terse. It is 12:00."}, {"role": "user", "content": "Hi"}]}
MESSAGES = {
    "model": "m",
    "max_tokens": 10,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Be terse."}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
}
RESPONSES = {
    "model": "m",
    "instructions": "Be terse.",
    "input": [{"role": "user", "content": "Hi"}],
    "previous_response_id": "resp_1",
}


@pytest.mark.parametrize(
    ("body", "protocol"),
    [
        (CHAT, Protocol.CHAT),
        (MESSAGES, Protocol.MESSAGES),
        (RESPONSES, Protocol.RESPONSES),
        ({"input": "Hi"}, Protocol.RESPONSES),
        ({"messages": [], "tools": [{"name": "f", "input_schema": {}}]}, Protocol.MESSAGES),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]}, Protocol.MESSAGES),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, Protocol.CHAT),
        ({"messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}, Protocol.CHAT),
    ],
)
def test_a_body_is_known_by_what_only_its_protocol_has(body: dict[str, Any], protocol: Protocol) -> None:
    assert detect(parse_json_object(json.dumps(body))) is protocol


@pytest.mark.parametrize("body", [CHAT, MESSAGES, RESPONSES])
def test_every_protocol_is_read_into_the_same_conversation(body: dict[str, Any]) -> None:
    request = read_request_body(json.dumps(body).encode(), None)

    assert [message.text for message in request.messages][-1] == "Hi"
    assert request.messages[0].text.startswith("Be terse.")


def test_the_billing_line_stays_where_it_is_asked_for() -> None:
    kept = read_request_body(json.dumps(MESSAGES).encode(), None, strip_billing_line=False)

    assert "x-anthropic-billing-header" in kept.messages[0].text


def write(path: Path, body: object) -> str:
    path.write_text(json.dumps(body))
    return str(path)


def clock(time: str) -> dict[str, Any]:
    return json.loads(json.dumps(CHAT).replace("12:00", time))  # type: ignore[no-any-return]


def test_explain_names_the_cause_and_shows_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now, earlier = write(tmp_path / "now.json", clock("12:07")), write(tmp_path / "earlier.json", clock("12:00"))

    code = main(["explain", now, "--previous", earlier, "--model", "scripted"])

    out = capsys.readouterr().out
    assert code == 0
    assert "A clock changed" in out
    assert "It said '12:00' and says '12:07'." in out
    assert "new input" in out


@pytest.mark.parametrize("family", ["smollm2", "glm-4.7"])
def test_explain_gives_the_same_facts_as_json(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now, earlier = write(tmp_path / "now.json", clock("12:07")), write(tmp_path / "earlier.json", clock("12:00"))

    code = main(
        ["explain", now, earlier, "--model", "scripted", "--json", *(["--family", family] if family == "glm-4.7" else [])]
    )

    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["cause"]["name"] == "changed_clock"
    assert told["nearest"]["fork"] == told["total"]["cached_tokens"]
    assert sum(part["tokens"] for part in told["composition"]) == told["prompt_tokens"] == told["total"]["tokens"]
    assert told["segments"][-1]["tokens"][1] == told["prompt_tokens"]


def test_explain_compares_two_dialects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "now.json", CHAT)

    main(["explain", file, file, "--model", "scripted", "--dialect", "dsml-v4.1", "--previous-dialect", "dsml-v4", "--json"])

    assert json.loads(capsys.readouterr().out)["cause"]["name"] == "other_dialect_revision"


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [("{", 1, "JSON"), ('{"messages": 5}', 1, "messages"), ("[]", 1, "object"), (None, 2, "No such file")],
)
def test_explain_says_what_is_wrong_with_a_file(
    text: str | None, code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "now.json"
    if text is not None:
        path.write_text(text)

    assert main(["explain", str(path), "--model", "scripted"]) == code
    assert says in capsys.readouterr().err
