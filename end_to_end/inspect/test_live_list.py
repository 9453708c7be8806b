"""The list of requests, while they run and after."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage
from end_to_end.serving import ServerProcess, started

Open = Callable[..., InspectorPage]


def test_each_request_stands_in_the_list_with_its_figures(inspect: Open, recorded: Talk) -> None:
    page = inspect().page

    rows = page.get_by_test_id("live-list").locator("tbody tr")
    expect(rows).not_to_have_count(0)
    answer = page.locator(f"#request-{recorded.chat_answer}")
    expect(answer).to_contain_text("Chat Completions stream")
    expect(answer).to_contain_text("OpenAI/Python")
    expect(answer).to_contain_text("end of turn")
    expect(answer.locator(".cached")).to_contain_text("resident")
    expect(page.locator(f"#request-{recorded.chat_call}")).to_contain_text("tool calls")
    messages = page.locator(f"#request-{recorded.messages_answer}")
    expect(messages).to_contain_text("Messages stream")
    expect(messages).to_contain_text("Anthropic")


def test_the_time_to_the_first_token_is_told_apart(inspect: Open, recorded: Talk) -> None:
    page = inspect().page

    bar = page.locator(f"#request-{recorded.chat_answer} .ttft-split .bar")
    for name in ("queue", "restore", "prefill"):
        expect(bar).to_have_attribute("aria-label", re.compile(name))
    expect(bar.locator("i")).to_have_count(3)


def test_the_newest_request_stands_first(inspect: Open) -> None:
    inspector = inspect()
    page = inspector.page
    inspector.settled()
    expect(page.get_by_test_id("live-list").locator("tbody tr").nth(4)).to_be_visible()

    numbers = [int(text) for text in page.locator("td.number a, th.number a").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) >= 5


@pytest.fixture
def slow_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """An answer takes ten minutes, unless it is given up."""
    script = {"seconds_per_step": 0.1, "answers": [{"segments": [{"text": "slow " * 1200}]}]}
    (tmp_path / "script.json").write_text(json.dumps(script), "utf-8")
    running = started("--model", "scripted", "--script", "script.json", "--quiet", directory=tmp_path)
    yield running
    running.stop()


def test_a_running_request_appears_and_ends_without_a_reload(browser: Browser, slow_server: ServerProcess) -> None:
    inspector = InspectorPage.opened(browser, slow_server.url)
    inspector.settled()
    rows = inspector.page.locator("tbody tr")
    asked: Any = {"model": "scripted", "messages": [{"role": "user", "content": "One"}]}

    with slow_server.openai().chat.completions.create(**asked, stream=True):
        expect(rows).to_have_count(1)
        expect(rows.first).to_have_attribute("data-state", "decoding")
    expect(rows.first).to_have_attribute("data-state", "cancelled")
    slow_server.openai().chat.completions.create(**asked, max_completion_tokens=2)
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_attribute("data-state", "ended")
    inspector.close()


def test_a_row_opens_its_request(inspect: Open, recorded: Talk) -> None:
    inspector = inspect()

    inspector.page.locator(f"#request-{recorded.chat_call} .client").click()
    expect(inspector.page.locator("h1")).to_contain_text("Request")
    assert inspector.page.url.endswith(f"#/requests/{recorded.chat_call}")
    expect(inspector.panel("wire")).to_be_visible()


def test_a_request_that_is_not_recorded_is_explained(inspect: Open) -> None:
    inspector = inspect("requests/nobody")

    expect(inspector.page.get_by_role("alert")).to_contain_text("no longer recorded")
