"""Many clients at once, and strangers among them: none lost, none mixed up, nobody pays for another's habits."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from end_to_end.serving import PATIENCE_SECONDS, ServerProcess, started

NUM_STREAMS = 200
WAVES = 6
GROWTH_BYTES = 16 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    # freed memory goes back at once: else what the allocator keeps for later, up to 37 MB, comes and goes between waves
    variables = {"MALLOC_TRIM_THRESHOLD_": str(128 << 10)}
    running = started("--model", "scripted", "--quiet", directory=tmp_path_factory.mktemp("many"), variables=variables)
    yield running
    running.stop()


def resident_bytes(server: ServerProcess) -> int:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * 4096


def figure(server: ServerProcess, name: str) -> float:
    page = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_SECONDS).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


def running_answers_at_rest(server: ServerProcess) -> float:
    """What still runs once the server had time to notice that nobody waits: a reader sees the end before it is counted."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (running := figure(server, "zllm_running_answers")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return running


async def echo(http: httpx.AsyncClient, url: str, number: int) -> str:
    """The text of one streamed answer: the smallest value of a schema that only this client asked for."""
    schema = {"type": "object", "properties": {"who": {"const": f"client {number} " * 4}}, "required": ["who"]}
    shape = {"type": "json_schema", "json_schema": {"name": "me", "schema": schema}}
    body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": "x"}], "response_format": shape}
    async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        frames = [line[6:] async for line in response.aiter_lines() if line.startswith("data: ")]
    assert frames[-1] == "[DONE]"
    deltas = [json.loads(frame)["choices"][0]["delta"] for frame in frames[:-1]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def wave(url: str, count: int) -> list[str]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=PATIENCE_SECONDS * 5) as http:
        return list(await asyncio.gather(*(echo(http, url, number) for number in range(count))))


def test_two_hundred_streams_at_once_are_all_right_and_memory_stays_flat(server: ServerProcess) -> None:
    sizes = []
    for _ in range(WAVES):
        texts = asyncio.run(wave(server.url, NUM_STREAMS))
        assert [json.loads(text)["who"] for text in texts] == [f"client {number} " * 4 for number in range(NUM_STREAMS)]
        sizes.append(resident_bytes(server))

    # the first wave is the warm-up; a leak shows in the lowest of any waves after it
    assert min(sizes[-2:]) - min(sizes[1:3]) < GROWTH_BYTES, [size >> 20 for size in sizes]
    assert running_answers_at_rest(server) == 0


def test_slow_and_vanishing_readers_cost_the_others_nothing(server: ServerProcess) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"model": "scripted", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
    request = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    slow = []
    for number in range(40):
        one = socket.create_connection((host, int(port)))
        one.sendall(request)
        if number % 2:
            one.recv(64)
            one.close()  # vanishes in mid-stream
        else:
            slow.append(one)  # never reads

    texts = asyncio.run(wave(server.url, 20))
    for one in slow:
        one.close()

    assert [json.loads(text)["who"] for text in texts] == [f"client {number} " * 4 for number in range(20)]
    assert running_answers_at_rest(server) == 0


def test_one_too_many_is_told_when_to_come_back_in_its_own_words(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"seconds_per_step": 0.05, "answers": [{"segments": [{"text": "slow " * 4000}]}]}), "utf-8")
    arguments = ["--script", str(script), "--max-concurrent-requests", "1"]
    server = started("--model", "scripted", *arguments, "--quiet", directory=tmp_path)
    try:
        url, chat = f"{server.url}/v1/chat/completions", {"model": "scripted", "messages": [{"role": "user", "content": "x"}]}
        first, second = server.openai(), server.anthropic()
        with httpx.stream("POST", url, json={**chat, "stream": True}, timeout=PATIENCE_SECONDS) as running:
            pieces = running.iter_text()  # kept: an iterator that is dropped closes the connection
            next(pieces)
            with pytest.raises(openai.RateLimitError) as limited:
                first.responses.create(model="scripted", input="x")
            with pytest.raises(anthropic.APIStatusError) as overloaded:
                second.messages.create(model="scripted", max_tokens=9, messages=[{"role": "user", "content": "x"}])
        assert running_answers_at_rest(server) == 0  # who leaves gives his place back once the server has seen it
        for _ in range(3):  # who has his last byte has given it back
            assert httpx.post(url, json={**chat, "max_tokens": 1}, timeout=PATIENCE_SECONDS).status_code == 200
    finally:
        server.stop()

    assert (limited.value.code, overloaded.value.status_code) == ("rate_limit_exceeded", 529)
    assert {int(error.value.response.headers["retry-after"]) for error in (limited, overloaded)} == {1}


@pytest.mark.parametrize("is_shared", [False, True], ids=["apart", "shared"])
def test_keys_have_caches_and_responses_of_their_own(is_shared: bool, tmp_path: Path) -> None:
    keys = [part for key in ("sk-ada", "sk-bob") for part in ("--api-key", key)]
    sharing = ["--cache-sharing"] if is_shared else []
    server = started("--model", "scripted", *keys, *sharing, "--quiet", directory=tmp_path)
    try:
        ada, bob = (
            openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE_SECONDS)
            for key in ("sk-ada", "sk-bob")
        )
        said = "The same long words from both of them. " * 20
        first = ada.responses.create(model="scripted", input=said)
        second = bob.responses.create(model="scripted", input=said)
        with pytest.raises(openai.NotFoundError):
            bob.responses.retrieve(first.id)
        with pytest.raises(openai.NotFoundError):
            bob.responses.delete(first.id)
        with pytest.raises(openai.BadRequestError) as error:
            bob.responses.create(model="scripted", input="x", previous_response_id=first.id)
        refused: list[Any] = [
            httpx.get(f"{server.url}/v1/models", headers=headers, timeout=PATIENCE_SECONDS).status_code
            for headers in ({}, {"authorization": "Bearer sk-eve"}, {"x-api-key": "sk-bob"})
        ]
        assert ada.responses.retrieve(first.id).id == first.id
    finally:
        server.stop()

    assert error.value.code == "previous_response_not_found"
    assert refused == [401, 401, 200]
    assert second.usage is not None
    assert (second.usage.input_tokens_details.cached_tokens > 0) is is_shared
