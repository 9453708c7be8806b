"""How each token of an answer came to be."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage

Open = Callable[..., InspectorPage]


def test_a_call_shows_sampled_and_forced_tokens_and_the_phases_of_its_fence(inspect: Open, recorded: Talk) -> None:
    inspector = inspect(f"requests/{recorded.chat_call}/decode")
    page = inspector.page

    tally = page.get_by_test_id("decode-tally")
    expect(tally.locator(".forced b")).not_to_have_text("0")
    expect(tally).to_contain_text("fenced")
    expect(page.locator(".decoded").first).to_be_visible()
    rows = inspector.panel("decode")
    expect(rows.locator(".decoded .phase", has_text="text").first).to_be_visible()
    inspector.scroll("decode")
    expect(rows.locator(".decoded .phase", has_text=re.compile("region|after|end")).last).to_be_visible()


def test_each_row_has_text_id_and_time(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.chat_answer}/decode").page

    row = page.locator(".decoded").first
    expect(row.locator(".piece code")).to_have_text(re.compile("It"))
    expect(row.locator(".piece small")).to_have_text(re.compile(r"^\d+$"))
    expect(row.locator(".time")).to_have_text(re.compile("ms|s"))


def test_alternatives_are_explained_where_they_were_not_recorded(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.chat_answer}/decode").page

    expect(page.locator(".tally")).to_contain_text("Alternatives were not recorded")
    page.get_by_label("record alternatives").check()
    expect(page.locator(".tally")).to_contain_text("It costs decode speed")
