"""The list of requests, while they run and after."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage
from end_to_end.serving import ServerProcess

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


def test_a_running_request_appears_and_ends_without_a_reload(inspect: Open, server: ServerProcess) -> None:
    page = inspect().page
    expect(page.get_by_test_id("live-list").locator("tbody tr").nth(4)).to_be_visible()
    before = page.locator("tbody tr").count()
    spoken: list[Any] = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "1"}] * 2
    question: Any = {"model": "scripted", "messages": [*spoken, {"role": "user", "content": "Three"}]}

    sending = threading.Thread(target=lambda: server.openai().chat.completions.create(**question))
    sending.start()
    expect(page.locator('tbody tr[data-state="decoding"]')).to_have_count(1)
    sending.join()

    expect(page.locator("tbody tr")).to_have_count(before + 1)
    expect(page.locator("tbody tr").first).to_have_attribute("data-state", "ended")


def test_a_row_opens_its_request(inspect: Open, recorded: Talk) -> None:
    inspector = inspect()

    inspector.page.locator(f"#request-{recorded.chat_call} .client").click()
    expect(inspector.page.locator("h1")).to_contain_text("Request")
    assert inspector.page.url.endswith(f"#/requests/{recorded.chat_call}")
    expect(inspector.panel("wire")).to_be_visible()


def test_a_request_that_is_not_recorded_is_explained(inspect: Open) -> None:
    inspector = inspect("requests/nobody")

    expect(inspector.page.get_by_role("alert")).to_contain_text("no longer recorded")
