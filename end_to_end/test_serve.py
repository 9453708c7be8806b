"""The command that a person runs, from outside: a process, a port, the official SDKs, signals."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from end_to_end.serving import PATIENCE_SECONDS, ROOT, START_SECONDS, ServerProcess, started
from zllm_ref import __version__
from zllm_ref.__main__ import main

TEXT = "Schön, 日本 🙂: two plus two is four."
STORY = {
    "answers": [
        {"segments": [{"text": TEXT}]},
        {"segments": [{"text": "Let me look."}, {"call": {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}}]},
        {"segments": [{"text": "Sunny."}]},
    ]
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
RESPONSES_TOOLS: Any = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}]
MESSAGES_TOOLS: Any = [{"name": "get_weather", "input_schema": PARAMETERS}]
QUESTION = "What is two plus two?"
SECOND = "And the weather in Rome?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("serve")
    (directory / "story.json").write_text(json.dumps(STORY), "utf-8")
    running = started("--model", "scripted", "--script", str(directory / "story.json"), "--quiet", directory=directory)
    yield running
    running.stop()
    assert "Traceback" not in running.errors


def chat_history(turn: int) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    if turn:
        messages += [{"role": "assistant", "content": TEXT}, {"role": "user", "content": SECOND}]
    return messages


# stream = unary (X1)


@pytest.mark.parametrize("turn", [0, 1], ids=["text", "call"])
def test_a_chat_stream_accumulates_to_the_unary_answer(server: ServerProcess, turn: int) -> None:
    client = server.openai()
    options: Any = {"model": "scripted", "messages": chat_history(turn), "tools": CHAT_TOOLS}

    unary = client.chat.completions.create(**options)
    with client.chat.completions.stream(**options, stream_options={"include_usage": True}) as stream:
        streamed = stream.get_final_completion()

    one, other = unary.choices[0], streamed.choices[0]
    assert (one.message.content, one.finish_reason) == (other.message.content, other.finish_reason)
    calls = [
        [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []] for choice in (one, other)
    ]
    assert calls[0] == calls[1] == ([("get_weather", '{"city": "Rome", "days": 2}')] if turn else [])
    assert unary.usage is not None
    assert streamed.usage is not None
    assert unary.usage.prompt_tokens == streamed.usage.prompt_tokens
    assert unary.usage.completion_tokens == streamed.usage.completion_tokens


@pytest.mark.parametrize("turn", [0, 1], ids=["text", "call"])
def test_a_response_stream_accumulates_to_the_unary_answer(server: ServerProcess, turn: int) -> None:
    client = server.openai()
    options: Any = {"model": "scripted", "input": chat_history(turn), "tools": RESPONSES_TOOLS}

    unary = client.responses.create(**options)
    with client.responses.stream(**options) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_response()

    def shown(response: Any) -> list[Any]:
        return [item.model_dump(exclude={"id", "call_id", "parsed_arguments"}) | {"content": None} for item in response.output]

    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert unary.output_text == streamed.output_text
    assert shown(unary) == shown(streamed)
    assert unary.usage is not None
    assert streamed.usage is not None
    assert unary.usage.total_tokens == streamed.usage.total_tokens


@pytest.mark.parametrize("turn", [0, 1], ids=["text", "call"])
def test_a_message_stream_accumulates_to_the_unary_answer(server: ServerProcess, turn: int) -> None:
    client = server.anthropic()
    options: Any = {"model": "scripted", "max_tokens": 500, "messages": chat_history(turn), "tools": MESSAGES_TOOLS}

    unary = client.messages.create(**options)
    with client.messages.stream(**options) as stream:
        streamed = stream.get_final_message()

    def shown(message: Any) -> list[Any]:
        return [block.model_dump(include={"type", "text", "name", "input"}) for block in message.content]

    assert shown(unary) == shown(streamed)
    assert unary.stop_reason == streamed.stop_reason == ("tool_use" if turn else "end_turn")
    assert unary.usage.output_tokens == streamed.usage.output_tokens


# one story in three protocols (X2)


def test_three_protocols_tell_the_same_story(server: ServerProcess) -> None:
    for turn in (0, 1):
        chat = server.openai().chat.completions.create(model="scripted", messages=chat_history(turn), tools=CHAT_TOOLS)
        response = server.openai().responses.create(model="scripted", input=chat_history(turn), tools=RESPONSES_TOOLS)
        message = server.anthropic().messages.create(
            model="scripted", max_tokens=500, messages=chat_history(turn), tools=MESSAGES_TOOLS
        )

        texts = [
            chat.choices[0].message.content,
            response.output_text,
            "".join(block.text for block in message.content if block.type == "text"),
        ]
        calls = [
            [(call.function.name, json.loads(call.function.arguments)) for call in chat.choices[0].message.tool_calls or []],
            [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"],
            [(block.name, block.input) for block in message.content if block.type == "tool_use"],
        ]
        assert texts == [texts[0]] * 3
        assert texts[0] is not None
        assert texts[0].startswith("Let me look." if turn else TEXT)
        assert calls == [[("get_weather", {"city": "Rome", "days": 2})] if turn else []] * 3
        assert chat.usage is not None
        assert response.usage is not None
        assert chat.usage.prompt_tokens == response.usage.input_tokens
        whole_input = message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)
        assert whole_input + (message.usage.cache_creation_input_tokens or 0) == chat.usage.prompt_tokens
        assert chat.usage.completion_tokens == response.usage.output_tokens == message.usage.output_tokens


def test_a_second_turn_reuses_all_of_the_first(server: ServerProcess) -> None:
    client = server.openai()
    question = {"role": "user", "content": "A question that nobody asked before."}
    first = client.chat.completions.create(model="scripted", messages=[question])  # type: ignore[list-item]
    assert first.usage is not None

    second = client.chat.completions.create(
        model="scripted",
        messages=[question, first.choices[0].message.to_dict(), {"role": "user", "content": "Go on."}],  # type: ignore[list-item]
    )

    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    reused = second.usage.prompt_tokens_details.cached_tokens
    assert reused == first.usage.prompt_tokens + first.usage.completion_tokens


def test_counted_tokens_are_those_of_the_answer(server: ServerProcess) -> None:
    options: Any = {"model": "scripted", "messages": chat_history(1), "tools": MESSAGES_TOOLS}

    counted = server.anthropic().messages.count_tokens(**options)
    usage = server.anthropic().messages.create(**options, max_tokens=1).usage

    total = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert counted.input_tokens == total


def test_a_stop_string_and_a_step_size_from_outside_give_the_same_text(server: ServerProcess) -> None:
    said = set()
    for size in ("1", "3", "1000"):
        answer = server.openai().chat.completions.with_raw_response.create(
            model="scripted", messages=chat_history(0), stop=["🙂: two"], extra_headers={"x-tokens-per-step": size}
        )
        assert answer.headers["x-tokens-per-step"] == size  # taken, not passed over
        said.add(answer.parse().choices[0].message.content)

    assert said == {"Schön, 日本 "}


def test_a_prompt_that_is_too_long_is_a_400_that_names_both_numbers(server: ServerProcess) -> None:
    with pytest.raises(openai.BadRequestError, match=r"got \d+ tokens, allowed \d+") as caught:
        server.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x" * 140_000}])

    assert caught.value.code == "context_length_exceeded"


# life and death of the process


def test_the_start_ends_with_the_address_and_a_line_to_paste(server: ServerProcess) -> None:
    server.wait_until_announced()

    lines = server.errors.splitlines()
    assert any(line.startswith("ready: scripted") for line in lines)
    pasted = next(line for line in lines if line.startswith("curl "))
    assert f"{server.url}/v1/chat/completions" in pasted
    done = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    assert done.stdout.rstrip().endswith("data: [DONE]")


def test_a_signal_while_a_stream_runs_ends_the_stream_writes_the_states_and_then_ends_the_process(tmp_path: Path) -> None:
    # long enough to be running still, and small enough to be sent whatever a reader does who is held up meanwhile
    script = {"seconds_per_step": 0.05, "answers": [{"segments": [{"text": "word " * 12}]}]}
    (tmp_path / "script.json").write_text(json.dumps(script), "utf-8")
    snapshots = ("--ssd-dir", "states", "--no-write-behind")
    running = started("--model", "scripted", "--script", "script.json", *snapshots, directory=tmp_path)
    arrived, chunks = threading.Event(), []

    def listen() -> None:
        body = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": "go"}]}
        try:
            with httpx.stream("POST", f"{running.url}/v1/chat/completions", json=body, timeout=PATIENCE_SECONDS) as response:
                for line in response.iter_lines():
                    chunks.append(line)
                    arrived.set()
        except httpx.HTTPError as error:
            chunks.append(f"broken: {error!r}")

    client = threading.Thread(target=listen)
    client.start()
    assert arrived.wait(PATIENCE_SECONDS)
    code = running.stop()  # waits for a while, and no longer
    client.join(PATIENCE_SECONDS)

    assert not client.is_alive()
    assert code == 0
    assert "Traceback" not in running.errors
    last = [line for line in chunks if line][-1]
    assert not last.startswith("broken"), last  # the whole answer, or an error in the protocol's own form
    assert last == "data: [DONE]" or "error" in last
    assert list((tmp_path / "states").rglob("*.chunk")), "what only memory held is lost"


def test_what_loading_made_is_out_of_the_collectors_sight(tmp_path: Path) -> None:
    """A full collection holds up every stream: with a model's vocabularies in sight about 100 ms, without them none."""
    watching = (
        "import atexit, gc, pathlib\natexit.register(lambda: pathlib.Path('frozen').write_text(str(gc.get_freeze_count())))"
    )
    (tmp_path / "sitecustomize.py").write_text(watching, "utf-8")
    python_path = os.pathsep.join((str(tmp_path), str(ROOT)))
    running = started("--model", "scripted", "--quiet", directory=tmp_path, variables={"PYTHONPATH": python_path})
    running.wait_until_announced()

    running.stop()

    assert int((tmp_path / "frozen").read_text()) > 100_000


def test_a_port_that_is_taken_is_one_clear_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        code = main(("serve", "--model", "scripted", "--threads", "1", "--port", port))

    errors = capfd.readouterr().err
    assert code == 2
    assert "Traceback" not in errors
    [line] = [line for line in errors.splitlines() if "cannot" in line]
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_a_model_that_nobody_knows_is_one_clear_line_and_exit_code_2(tmp_path: Path) -> None:
    server = ServerProcess("--port", "0", "--model", "no-such-model", directory=tmp_path)
    try:
        code = server.process.wait(START_SECONDS)
    finally:
        server.stop()

    assert code == 2
    assert "Traceback" not in server.errors
    [line] = [line for line in server.errors.splitlines() if "cannot" in line]
    assert "no-such-model" in line
    assert "allowed" in line


def test_the_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("--version",))

    assert ended.value.code == 0
    assert capsys.readouterr().out.strip() == __version__
