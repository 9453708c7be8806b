"""What a person does before the page is there: a key or a click counts as if it had been."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage
from end_to_end.serving import PATIENCE_SECONDS, ServerProcess

Open = Callable[..., InspectorPage]

HOLD = """
  (() => {
    const fetched = window.fetch;
    const let_go = new Promise(resolve => { window.letGo = resolve; });
    window.held = 0;
    window.fetch = async (...asked) => {
      const answer = fetched(...asked);
      if (!String(asked[0]).includes(HELD)) return answer;
      answer.catch(() => {});  // one that is given up while it is held has nobody to tell
      window.held += 1;
      await let_go;
      return answer;
    };
  })();
"""
"""Answers from addresses with HELD in them reach the page once the test lets them go."""

AT_ONCE = """
  new MutationObserver((_, observer) => {
    if (!document.querySelector('tbody tr')) return;
    observer.disconnect();
    document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}));
  }).observe(document, {childList: true, subtree: true});
"""
"""Presses a key in the very step in which the first row comes."""


def holding(inspector: InspectorPage, address: str) -> None:
    inspector.page.add_init_script(f"const HELD = {json.dumps(address)};" + HOLD)
    inspector.page.reload()
    inspector.eventually(lambda: inspector.page.evaluate("window.held") > 0, f"{address} is not asked for")


def test_a_key_counts_from_the_step_on_in_which_its_rows_are_drawn(inspect: Open) -> None:
    page = inspect().page
    page.add_init_script(AT_ONCE)
    page.reload()

    expect(page.locator("tbody tr").first).to_have_class("marked")


def test_rows_that_come_late_are_marked_by_the_keys_that_came_before_them(inspect: Open) -> None:
    inspector = inspect()
    page = inspector.page
    holding(inspector, "/events")
    for key in ("j", "j", "j", "k"):
        page.keyboard.press(key)

    page.evaluate("window.letGo()")
    expect(page.locator("tbody tr").nth(1)).to_have_class("marked")
    expect(page.locator("tbody tr.marked")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Request")


@pytest.mark.parametrize("held", ["/segments", "/requests/{id}"], ids=["one panel", "all of the request"])
def test_a_panel_that_comes_late_has_the_focus_that_was_asked_for(inspect: Open, recorded: Talk, held: str) -> None:
    inspector = inspect(f"requests/{recorded.chat_answer}")
    holding(inspector, held.format(id=recorded.chat_answer))
    inspector.page.keyboard.press("3")

    expect(inspector.panel("segments")).to_have_count(0)
    inspector.page.evaluate("window.letGo()")
    expect(inspector.panel("segments")).to_be_focused()


def test_a_panel_that_comes_late_takes_the_focus_from_nobody(inspect: Open, recorded: Talk) -> None:
    inspector = inspect(f"requests/{recorded.chat_answer}")
    holding(inspector, "/segments")
    expect(inspector.page.get_by_role("checkbox")).to_be_visible()
    inspector.page.keyboard.press("3")
    inspector.page.get_by_role("checkbox").focus()

    inspector.page.evaluate("window.letGo()")
    expect(inspector.panel("segments")).to_be_visible()
    inspector.page.wait_for_timeout(300)
    expect(inspector.page.get_by_role("checkbox")).to_be_focused()


def test_what_is_run_is_what_is_written(inspect: Open, server: ServerProcess) -> None:
    """A run that is asked for while the last letters are still being rendered waits for them."""
    inspector = inspect("playground")
    page = inspector.page
    expect(page.locator(".draft-message.role-user textarea").first).to_be_visible()
    holding(inspector, "/render")
    page.locator(".draft-message.role-user textarea").first.fill("The very last words")
    page.get_by_role("button", name="Run it").click()

    expect(page.get_by_test_id("run-answer")).to_have_count(0)
    page.evaluate("window.letGo()")
    page.get_by_role("link", name="Open it as a request").click()
    expect(page.locator("h1")).to_contain_text("Request")
    request = page.url.rsplit("/", 1)[1]
    sent = httpx.get(f"{server.url}/inspect/api/requests/{request}/wire", timeout=PATIENCE_SECONDS).json()["request"]["body"]
    assert "The very last words" in sent
