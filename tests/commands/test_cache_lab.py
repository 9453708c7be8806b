"""cache-lab against small servers of known behaviour: what it reports, and what it leaves unknown."""

from __future__ import annotations

import argparse
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from zllm_ref.commands import cache_lab
from zllm_ref.commands.cache_experiment import Prices, _exchange, cached_tokens

Reuse = Callable[[list[str], str], int | None]
PRICES = Prices(1.0, 10.0, 100.0)


class Server:
    """Counts words as tokens, and reuses what a rule says of the prompts seen so far."""

    def __init__(self, reuse: Reuse, breaks_at: int = -1, refuses_at: int = -1, reasons: bool = False) -> None:
        self.reuse, self.breaks_at, self.refuses_at, self.reasons = reuse, breaks_at, refuses_at, reasons
        self.prompts: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"data": [{"id": "toy"}]}')

            def do_POST(self) -> None:
                outer.answer(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        number = len(self.bodies)
        self.bodies.append(body)
        prompt = "\n".join(str(message.get("content")) for message in body["messages"])
        if number == self.refuses_at:
            handler.send_response(429)
            handler.end_headers()
            handler.wfile.write(b"slow down")
            return
        cached = self.reuse(self.prompts, prompt)
        self.prompts.append(prompt)
        handler.send_response(200)
        handler.end_headers()
        deltas: list[dict[str, Any]] = [{"reasoning_content": "hm"}] if self.reasons else []
        if body.get("tools") and number < 2:
            call = {"index": 0, "id": f"call_{number}", "function": {"name": "look_up", "arguments": '{"word":"otter"}'}}
            deltas.append({"tool_calls": [call]})
        else:
            deltas.append({"content": "badger"})
        for delta in deltas:
            send(handler, {"choices": [{"delta": delta}]})
        if number == self.breaks_at:
            send(handler, {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "prompt_cache_hit_tokens": 0}, "choices": []})
            return
        usage: dict[str, Any] = {"prompt_tokens": len(prompt.split()), "completion_tokens": 5}
        if cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        send(handler, {"choices": [], "usage": usage})
        handler.wfile.write(b"data: [DONE]\n\n")

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def send(handler: BaseHTTPRequestHandler, chunk: dict[str, Any]) -> None:
    handler.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def common(first: str, second: str) -> int:
    pairs = zip(first.split(), second.split(), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first.split()), len(second.split())))


def any_prefix(seen: list[str], prompt: str) -> int | None:
    return max((min(common(past, prompt), len(prompt.split()) - 1) for past in seen), default=0)


def whole_units(seen: list[str], prompt: str) -> int | None:
    """End of prompt, and the common prefix of any two prompts: the hosted rule."""
    units = {len(past.split()) - 1 for past in seen if common(past, prompt) >= len(past.split()) - 1}
    units |= {common(a, b) for a in seen for b in seen if a != b and common(a, prompt) >= common(a, b) > 1}
    return max(units, default=0)


def silent(seen: list[str], prompt: str) -> int | None:
    return None


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*args: Any, **options: Any) -> Server:
        servers.append(Server(*args, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def lab(server: Server, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cache_lab.add_parser(parser.add_subparsers())
    args = parser.parse_args(
        ["cache-lab", "--base-url", server.url, "--wait", "0", "--seed", "7", "--prefix-words", "100", *arguments]
    )
    return int(args.run(args))


def exchanges(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return list(json.loads(capsys.readouterr().out)["exchanges"])


def test_a_cache_that_cuts_anywhere_reuses_each_common_beginning(
    serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(any_prefix)
    assert lab(server, "--json") == 0

    found = exchanges(capsys)

    assert [one["step"] for one in found] == ["P+Q", "P+Q again", "P+R", "P+S", "P'+S"]
    cached = [one["cached_tokens"] for one in found]
    assert cached[0] == 0
    assert cached[1] == found[1]["prompt_tokens"] - 1
    assert cached[2:4] == [102, 102]
    assert cached[4] == int(101 * 0.5) + 1
    assert [one["status"] for one in found] == ["complete"] * 5
    assert found[0]["interval_seconds"] is None
    assert all(one["interval_seconds"] >= 0 for one in found[1:])


def test_the_hosted_rule_is_recognised(serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]) -> None:
    assert lab(serve(whole_units)) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "no saved unit ends with P" in lines[-3]
    assert "P became a unit when P+R shared it" in lines[-2]
    assert "P changed before the end of every unit" in lines[-1]


def test_what_is_not_reported_is_unknown_and_never_zero(serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(silent)
    lab(server, "--json", "--prices", "1,10,100")
    for one in exchanges(capsys):
        assert (one["cached_tokens"], one["cost"]) == (None, None)
        assert one["prompt_tokens"] > 100

    lab(server, "--prices", "1,10,100")
    printed = capsys.readouterr().out
    assert "unknown: the server does not report it" in printed
    assert "?" * 50 in printed


def test_an_interrupted_exchange_is_unknown_even_if_usage_came(
    serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab(serve(any_prefix, breaks_at=1), "--json") == 1

    broken = exchanges(capsys)[1]

    assert broken["status"] == "interrupted"
    assert (broken["prompt_tokens"], broken["cached_tokens"], broken["output_tokens"]) == (None, None, None)
    assert broken["total_seconds"] is None
    assert broken["usage"] == {"prompt_tokens": 1, "completion_tokens": 1, "prompt_cache_hit_tokens": 0}


def test_a_refusal_is_reported_with_its_words_and_the_run_goes_on(
    serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab(serve(any_prefix, refuses_at=2), "--json") == 1

    found = exchanges(capsys)

    assert (found[2]["status"], found[2]["detail"]) == ("refused", "429 slow down")
    assert found[3]["status"] == "complete"


def test_first_reasoning_and_first_text_are_told_apart(serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]) -> None:
    lab(serve(any_prefix, reasons=True), "--json")

    for one in exchanges(capsys):
        assert 0 <= one["first_reasoning_seconds"] <= one["first_text_seconds"] <= one["total_seconds"]

    lab(serve(any_prefix), "--json")
    assert all(one["first_reasoning_seconds"] is None for one in exchanges(capsys))


def test_the_tool_loop_sends_back_each_call_with_its_result(
    serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(any_prefix)
    assert lab(server, "--json", "--tool-loop", "5") == 0

    found = exchanges(capsys)

    assert [one["step"] for one in found] == ["round 1", "round 2", "round 3"]
    assert found[0]["first_tool_seconds"] is not None
    assert [message["role"] for message in server.bodies[2]["messages"]] == ["system", "user", *["assistant", "tool"] * 2]
    assert server.bodies[2]["messages"][3]["tool_call_id"] == "call_0"


def test_numbers_and_chunks_that_make_no_sense_are_unknown_and_end_nothing() -> None:
    """Seen in the wild: calls that are counted from -1, no index at all, choices of another shape, null counts."""
    chunks: list[Any] = [
        {
            "choices": [
                None,
                {"delta": None},
                {"delta": {"tool_calls": [{"index": -1, "id": "a", "function": {"name": "look_up"}}]}},
            ]
        },
        {
            "choices": [
                {"delta": {"tool_calls": [{"function": {"arguments": "{}"}}, {"id": "b", "function": {"name": "look_up"}}]}}
            ]
        },
        {"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": "5", "prompt_cache_hit_tokens": -3}},
    ]
    sent = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=sent))

    with httpx.Client(base_url="http://nowhere/v1/", transport=transport) as client:
        exchange, message = _exchange(client, "P+Q", 0, {}, None, lambda: 0.0)

    assert exchange.status == "complete"
    assert (exchange.prompt_tokens, exchange.cached_tokens, exchange.output_tokens) == (None, None, None)
    assert [(call["id"], call["function"]["name"]) for call in message["tool_calls"]] == [("a", "look_up"), ("b", "look_up")]
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_prices_add_the_cost(serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]) -> None:
    lab(serve(any_prefix), "--json", "--prices", "1,10,100")

    for one in exchanges(capsys):
        missed = one["prompt_tokens"] - one["cached_tokens"]
        assert one["cost"] == pytest.approx((one["cached_tokens"] + 10 * missed + 500) / 1e6)


def test_every_repeat_has_a_prefix_of_its_own(serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]) -> None:
    lab(serve(any_prefix), "--json", "--repeats", "2")

    found = exchanges(capsys)

    assert [one["repeat"] for one in found] == [0] * 5 + [1] * 5
    assert found[5]["cached_tokens"] <= 1


def test_nobody_listening_is_said_and_nothing_invented(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    cache_lab.add_parser(parser.add_subparsers())
    with socket.socket() as deaf:  # the port is ours, so nobody else's, and nobody listens
        deaf.bind(("127.0.0.1", 0))
        arguments = ["cache-lab", "--base-url", f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", "--wait", "0"]

        args = parser.parse_args(arguments)
        assert args.run(args) == 2
        args = parser.parse_args([*arguments, "--model", "x", "--json"])
        assert args.run(args) == 1
    found = exchanges(capsys)
    assert {one["status"] for one in found} == {"unreachable"}
    assert {one["cached_tokens"] for one in found} == {None}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, 7),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_cache_hit_tokens": 9, "prompt_cache_miss_tokens": 1}, 9),
        ({"prompt_tokens_details": None, "prompt_cache_hit_tokens": 3}, 3),
        ({"prompt_tokens_details": {}}, None),
        ({"prompt_tokens": 5}, None),
        ({"prompt_cache_hit_tokens": "many"}, None),
    ],
)
def test_cached_tokens_are_read_from_whichever_field_there_is(usage: dict[str, Any], expected: int | None) -> None:
    assert cached_tokens(usage) == expected
