"""How each token of an answer came to be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, expect

from end_to_end.inspect.conversations import PARAMETERS, Talk, until_kept
from end_to_end.inspect.inspector_page import InspectorPage
from end_to_end.serving import PATIENCE_SECONDS, ServerProcess

Open = Callable[..., InspectorPage]

STRICT_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {**PARAMETERS, "additionalProperties": False, "required": ["city", "days"]},
    },
}
CUT_BYTE = 195
"""Half of a character: it repeats as words do, while letters may repeat as often as spaces in code."""
LETTERS = {"97": 100, "98": 100}
"""The answer is made of two letters at random: a drafter guesses half of them."""


@pytest.fixture(scope="module")
def call(drafting_server: ServerProcess) -> str:
    """A call that the fence forces; → its id."""
    return ask(
        drafting_server,
        tools=[STRICT_TOOL],
        tool_choice="required",
        reasoning_effort="none",
        temperature=0,
        max_completion_tokens=200,
    )


@pytest.fixture(scope="module")
def letters(drafting_server: ServerProcess) -> str:
    """How many guesses are made follows from measured seconds: asks until some were right and some were wrong."""
    for seed in range(7, 67):
        request = ask(drafting_server, logit_bias=LETTERS, temperature=1, seed=seed, max_completion_tokens=90)
        if {guess["accepted"] for guess in guesses(drafting_server, request)} == {True, False}:
            return request
    pytest.fail("of 60 answers none has right and wrong guesses")


@pytest.fixture(scope="module")
def loop(drafting_server: ServerProcess) -> str:
    """One token is always the likeliest: the guard lets it repeat so often, and then forbids it for a token."""
    bias = {str(CUT_BYTE): 100}
    return ask(drafting_server, logit_bias=bias, reasoning_effort="none", temperature=0, max_completion_tokens=60)


@pytest.fixture
def drafting(browser: Browser, drafting_server: ServerProcess) -> Iterator[InspectorPage]:
    inspector = InspectorPage.opened(browser, drafting_server.url)
    yield inspector
    inspector.close()


def ask(server: ServerProcess, **options: Any) -> str:
    messages: Any = [{"role": "user", "content": "Say something."}]
    answer = server.openai().chat.completions.with_raw_response.create(model="tiny-llama", messages=messages, **options)
    request = answer.headers["x-request-id"].removeprefix("req_")
    until_kept(server, request)  # the guesses of the last round are told behind its tokens
    return request


def tally(inspector: InspectorPage, name: str) -> int:
    return int(inspector.page.get_by_test_id("decode-tally").locator(f".{name} b").inner_text().replace(",", ""))


def facts(server: ServerProcess, request: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/inspect/api/requests/{request}/decode", timeout=PATIENCE_SECONDS).json()
    return found


def guesses(server: ServerProcess, request: str) -> list[dict[str, Any]]:
    return [guess for round_ in facts(server, request)["rounds"] for guess in round_["proposed"]]


def rows(inspector: InspectorPage) -> Locator:
    return inspector.panel("decode")


def test_tokens_that_the_fence_forced_are_told_from_sampled_ones(drafting: InspectorPage, call: str) -> None:
    drafting.open(f"requests/{call}/decode")

    expect(drafting.page.get_by_test_id("decode-tally")).to_contain_text("fenced")
    assert tally(drafting, "forced") > 20
    assert tally(drafting, "sampled") > 0
    expect(rows(drafting).locator(".decoded.forced .how").first).to_have_text(re.compile("forced by the fence"))
    expect(rows(drafting).locator(".decoded .phase", has_text="region").first).to_be_visible()


def test_guesses_are_shown_accepted_and_rejected_by_the_round(
    drafting: InspectorPage, drafting_server: ServerProcess, letters: str
) -> None:
    drafting.open(f"requests/{letters}/decode")
    guessed = guesses(drafting_server, letters)
    accepted = sum(guess["accepted"] for guess in guessed)

    expect(drafting.page.get_by_test_id("decode-tally")).to_contain_text("drafter: prompt_lookup")
    assert 0 < accepted < len(guessed)
    assert tally(drafting, "rejected") == len(guessed) - accepted
    assert tally(drafting, "accepted") > 0
    block = rows(drafting).locator(".round-row", has=drafting.page.locator(".guess")).first
    expect(block).to_contain_text(re.compile(r"round \d+\s*\d+ of \d+ guesses accepted"))
    drafting.page.locator(".round-row .guess.rejected, .round-row .guess.accepted").first.wait_for()


def test_a_token_that_the_guard_excluded_is_shown_where_it_would_have_been(
    drafting: InspectorPage, drafting_server: ServerProcess, loop: str
) -> None:
    tokens = facts(drafting_server, loop)["tokens"]
    (place,) = [token["index"] for token in tokens if token["excluded"]]
    assert {token["id"] for token in tokens[:place]} == {CUT_BYTE} != tokens[place]["id"]
    drafting.open(f"requests/{loop}/decode")

    expect(drafting.page.locator(".tally .how.excluded b")).to_have_text("1")
    drafting.page.locator('[data-panel="decode"]').evaluate("element => { element.scrollTop = element.scrollHeight; }")
    excluded = rows(drafting).locator(".decoded", has=drafting.page.locator(".alternative.excluded"))
    expect(excluded).to_have_count(1)
    expect(excluded.locator(".alternative.excluded")).to_have_text(re.compile("⊘"))
    expect(excluded.locator(".alternative.excluded")).to_have_attribute("title", re.compile("guard"))
    expect(excluded.locator(".piece small")).to_have_text(str(tokens[place]["id"]))


def test_alternatives_are_recorded_while_somebody_wants_them(
    drafting: InspectorPage, drafting_server: ServerProcess, letters: str
) -> None:
    drafting.open(f"requests/{letters}/decode")
    expect(drafting.page.locator(".tally")).to_contain_text("Alternatives were not recorded")
    with drafting.page.expect_request(lambda request: "alternatives=1" in request.url):
        drafting.page.get_by_label("record alternatives").check()
    expect(drafting.page.locator(".tally")).to_contain_text("It costs decode speed")
    expect(drafting.page.locator(".connection.live")).to_be_visible()

    request = ask(drafting_server, temperature=0, max_completion_tokens=12)
    drafting.page.evaluate("id => { location.hash = `#/requests/${id}/decode`; }", request)
    row = rows(drafting).locator(".decoded").first
    expect(row.locator(".probability b")).to_have_text(re.compile("%"))
    expect(row.locator(".alternative")).to_have_count(5)
    expect(row.locator(".alternative.taken")).to_have_count(1)


def test_each_row_has_text_id_and_time(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.chat_answer}/decode").page

    row = page.locator(".decoded").first
    expect(row.locator(".piece code")).to_have_text("I")
    expect(row.locator(".piece small")).to_have_text(re.compile(r"^\d+$"))
    expect(row.locator(".time")).to_have_text(re.compile(r"^[\d.,]+ m?s$"))


def test_of_several_choices_the_page_says_that_it_shows_the_first(
    drafting: InspectorPage, drafting_server: ServerProcess
) -> None:
    request = ask(drafting_server, n=2, logit_bias=LETTERS, temperature=1, seed=3, max_completion_tokens=6)
    drafting.open(f"requests/{request}/decode")

    expect(drafting.page.locator(".request .note").first).to_have_text("2 choices; the panels show the first")
    expect(rows(drafting).locator(".decoded")).to_have_count(6)


def test_a_request_that_was_refused_says_why_and_shows_its_wire(inspect: Open, server: ServerProcess) -> None:
    answer = httpx.post(
        f"{server.url}/v1/chat/completions", json={"model": "scripted", "messages": "none"}, timeout=PATIENCE_SECONDS
    )
    assert answer.status_code == 400
    inspector = inspect(f"requests/{answer.headers['x-request-id'].removeprefix('req_')}")

    expect(inspector.page.locator(".problem").first).to_contain_text("refused before the first token")
    expect(inspector.panel("wire")).to_contain_text('"messages":"none"')
    expect(inspector.page.locator(".panel.tokens")).to_contain_text("Nothing of this request reached this panel.")
