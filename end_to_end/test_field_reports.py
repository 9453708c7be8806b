"""What users of other servers reported, asked of this one: each report is a test of its own, against a real process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from conformance.checker import StreamCheck
from conformance.checker.unary_check import check_unary
from end_to_end.reports import REPORTS, TALKS, Report, Told
from end_to_end.serving import PATIENCE_SECONDS, ROOT, ServerProcess, started

NAMES = [row["report"] for row in json.loads((ROOT / "tests/protocols/field_reports.json").read_text("utf-8"))]
GRAMMARS = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
CALL = {"call": {"name": TALKS, "arguments": {"text": "é"}}}
SCRIPT = {"answers": [{"when_offered": TALKS, "segments": [{"reasoning": "Hm."}, {"text": "Well then."}, CALL, CALL]}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("reports")
    (folder / "script.json").write_text(json.dumps(SCRIPT), "utf-8")
    arguments = ["--script", str(folder / "script.json"), "--context-length", "131072", "--quiet"]
    running = started("--model", "scripted", *arguments, directory=folder)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        yield client


def ask(http: httpx.Client, path: str, body: dict[str, Any], size: int, *, stream: bool) -> httpx.Response:
    options = {} if stream else {"stream_options": None}
    asked = {"model": "scripted", **body, **options, "stream": stream}
    return http.post(path, json=asked, headers={"x-tokens-per-step": str(size)})


def told(http: httpx.Client, path: str, body: dict[str, Any], size: int) -> Told:
    """Both forms of one answer; the checker finds nothing in either, nor between them."""
    grammar = GRAMMARS[path.partition("?")[0]]
    unary, streamed = (ask(http, path, body, size, stream=stream) for stream in (False, True))
    assert (unary.status_code, streamed.status_code) == (200, 200), unary.text + streamed.text
    check = StreamCheck(grammar, request=body, unary=unary.json())
    check.feed(streamed.content)
    assert check.finish() == []
    assert check_unary(grammar, unary.json()) == []
    return Told(events_of(streamed), unary.json())


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]


def prompt_tokens(answer: dict[str, Any]) -> int:
    usage = answer["usage"]
    return int(usage.get("prompt_tokens") or usage["input_tokens"] + usage.get("cache_read_input_tokens", 0))


def check_answer(http: httpx.Client, report: Report, size: int) -> None:
    for _ in range(report.repeat):
        answer = told(http, report.path, report.body, size)
    assert report.expect(answer)
    sizes = [prompt_tokens(answer.unary)]
    body: dict[str, Any] = {}
    for turn in report.turns:
        body = turn(answer)
        answer = told(http, report.path, body, size)
        sizes.append(prompt_tokens(answer.unary))
    if len(sizes) > 2:  # a conversation grows by what was said, and never doubles
        growth = [after - before for before, after in pairwise(sizes[1:])]
        assert len(set(growth)) == 1, sizes
    elif "previous_response_id" in body:
        assert sizes[1] != sizes[0], "the earlier turn is part of the prompt"
    elif report.turns:
        assert answer.events[0]["message"]["usage"]["cache_read_input_tokens"] > 0.9 * sizes[0]


def check_status(http: httpx.Client, report: Report, size: int) -> None:
    for stream in (False, True):
        answer = ask(http, report.path, report.body, size, stream=stream)
        assert answer.status_code == report.status
        error = answer.json()["error"]
        assert error["message"]
        assert error["code"] is None or isinstance(error["code"], str)


def check_failure(http: httpx.Client, report: Report, size: int) -> None:
    streamed = ask(http, report.path, report.body, size, stream=True)
    check = StreamCheck(GRAMMARS[report.path], request=report.body)
    check.feed(streamed.content)
    assert check.finish() == []
    assert report.expect(Told(events_of(streamed), {}))
    assert ask(http, report.path, report.body, size, stream=False).status_code == 500


def check_chain(http: httpx.Client, report: Report, size: int) -> None:
    answer = told(http, report.path, report.body, size)
    refused = ask(http, report.path, report.turns[0](answer), size, stream=True)
    error = refused.json()["error"]
    found = (refused.status_code, error["type"], error["code"], error["param"])
    assert found == (400, "invalid_request_error", "previous_response_not_found", "previous_response_id")


def check_count(http: httpx.Client, report: Report) -> None:
    body = {"model": "scripted", **report.body}
    counted = http.post(report.path, json=body).json()
    answer = http.post("/v1/messages", json={**body, "max_tokens": 50}).json()
    assert counted == {"input_tokens": prompt_tokens(answer)}


def check_websocket(server: ServerProcess, report: Report) -> None:
    with server.websocket() as socket:
        for _ in range(2):
            socket.send(json.dumps({"type": "response.create", "model": "scripted", **report.body}))
            while (event := json.loads(socket.recv(PATIENCE_SECONDS)))["type"] != "response.completed":
                assert event["type"] != "error", event


@pytest.mark.parametrize("size", [1, 1000], ids=["a token a step", "all at once"])
@pytest.mark.parametrize("report", REPORTS, ids=NAMES)
def test_a_report_does_not_hold_here(server: ServerProcess, http: httpx.Client, report: Report, size: int) -> None:
    if report.path == "websocket":
        check_websocket(server, report)
    elif report.path == "upgrade":
        assert http.get("/v1/responses").status_code == 426
    elif report.path.endswith("count_tokens"):
        check_count(http, report)
    else:
        {"ok": check_answer, "status": check_status, "fails": check_failure, "chain": check_chain}[report.ends](
            http, report, size
        )


def test_every_report_is_asked() -> None:
    assert len(REPORTS) == len(NAMES) == 78
    assert Path(ROOT / "tests/protocols/field_reports.json").is_file()
