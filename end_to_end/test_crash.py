"""A server that is killed, and the one that comes after it: nothing that a client was told of is lost."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from conformance.checker import StreamCheck
from end_to_end.serving import PATIENCE_SECONDS, ServerProcess, started

STALLED = {
    "tokens_per_step": 1,
    "answers": [
        {
            "segments": [
                {"reasoning": "Let me see."},
                {"text": "These are the words that were said before."},
                {"call": {"name": "look", "arguments": {"where": "everywhere"}}},
            ],
            "fault": {"after_tokens": 60, "stall_seconds": 600},
        }
    ],
}
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}}


def serve(directory: Path, *arguments: str) -> ServerProcess:
    state = str(directory / "state")
    return started("--model", "scripted", "--state-dir", state, "--quiet", *arguments, directory=directory)


def events_of(body: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]


def whole_events_of(heard: str) -> list[dict[str, Any]]:
    """Of a stream that goes on: what was heard last may be the beginning of an event."""
    return events_of(heard[: heard.rfind("\n\n") + 2])


def test_a_background_response_that_was_running_is_closed_with_all_that_was_heard_of_it(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(STALLED), "utf-8")
    server = serve(tmp_path, "--script", str(tmp_path / "script.json"))
    heard = ""
    try:
        body = {"model": "scripted", "input": "x", "tools": [LOOK], "background": True, "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/responses", json=body, timeout=PATIENCE_SECONDS) as response:
            for piece in response.iter_text():
                heard += piece
                if "words that were" in said(whole_events_of(heard)):
                    break
        before = whole_events_of(heard)
        identity = before[0]["response"]["id"]
        running = httpx.get(f"{server.url}/v1/responses/{identity}", timeout=PATIENCE_SECONDS).json()
    finally:
        server.stop(signal.SIGKILL)

    server = serve(tmp_path)
    try:
        url = f"{server.url}/v1/responses/{identity}"
        kept = httpx.get(url, timeout=PATIENCE_SECONDS).json()
        last = before[-1]["sequence_number"]
        resumed = httpx.get(url, params={"stream": "true", "starting_after": last}, timeout=PATIENCE_SECONDS).text
        whole = httpx.get(url, params={"stream": "true"}, timeout=PATIENCE_SECONDS).content
    finally:
        server.stop()

    assert [event["type"] for event in before[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert running["status"] == "in_progress"
    assert kept["status"] == "failed"
    assert "restarted" in kept["error"]["message"]
    assert kept["output"][-1]["status"] == "incomplete"
    assert said(before) in kept["output"][-1]["content"][0]["text"]
    after = events_of(resumed)
    assert [event["sequence_number"] for event in before + after] == list(range(len(before) + len(after)))
    assert after[-1]["type"] == "response.failed"
    assert after[-1]["response"] == kept
    assert events_of(whole.decode()) == before + after
    check = StreamCheck("responses")
    check.feed(whole)
    assert check.finish() == []


def said(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def test_a_chain_and_what_was_sealed_survive_a_killed_process(tmp_path: Path) -> None:
    server = serve(tmp_path)
    try:
        client = server.openai()
        asked: dict[str, Any] = {"model": "scripted", "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]}
        first = client.responses.create(input="My name is Ada.", **asked)
        sealed = next(item for item in first.output if item.type == "reasoning").encrypted_content
    finally:
        server.stop(signal.SIGKILL)

    server = serve(tmp_path)
    try:
        client = server.openai()
        assert client.responses.retrieve(first.id).to_dict() == first.to_dict()
        second = client.responses.create(model="scripted", input="Who am I?", previous_response_id=first.id)
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed}
        rest = [item.to_dict() for item in first.output if item.type != "reasoning"]
        said = [{"role": "user", "content": "My name is Ada."}, thought, *rest, {"role": "user", "content": "Who am I?"}]
        body = {"model": "scripted", "input": said}
        by_hand = httpx.post(f"{server.url}/v1/responses/input_tokens", json=body, timeout=PATIENCE_SECONDS)
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            client.responses.create(model="scripted", input="x", previous_response_id=second.id)
    finally:
        server.stop()

    assert second.usage is not None
    assert second.usage.input_tokens == by_hand.json()["input_tokens"]


def look_again_and_again(client: openai.OpenAI, response_id: str) -> None:
    """For a minute at least."""
    for _ in range(600):
        client.responses.retrieve(response_id)
        time.sleep(0.1)


def test_the_least_used_of_stored_responses_gives_way(tmp_path: Path) -> None:
    server = serve(tmp_path, "--max-stored-bytes", "20000")
    try:
        client = server.openai()
        first = client.responses.create(model="scripted", input="a")
        assert client.responses.retrieve(first.id).id == first.id
        for _ in range(4):
            last = client.responses.create(model="scripted", input="b" * 5_000)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        assert client.responses.retrieve(last.id).id == last.id
    finally:
        server.stop()


def test_stored_responses_expire_however_often_they_are_looked_at(tmp_path: Path) -> None:
    """The one that was kept for long is there; the server that keeps for two seconds lets go of it, and of its own."""
    server = serve(tmp_path)
    try:
        kept = server.openai().responses.create(model="scripted", input="a").id
        assert server.openai().responses.retrieve(kept).id == kept
    finally:
        server.stop()

    server = serve(tmp_path, "--response-ttl", "2")
    try:
        client = server.openai()
        own = client.responses.create(model="scripted", input="a").id
        for response_id in (own, kept):
            with pytest.raises(openai.NotFoundError):
                look_again_and_again(client, response_id)
    finally:
        server.stop()
