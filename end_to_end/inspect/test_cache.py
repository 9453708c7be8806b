"""The cache: budget, tree, and what a context costs by architecture."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from end_to_end.inspect.inspector_page import InspectorPage

Open = Callable[..., InspectorPage]


def test_the_gauge_tells_the_budget(inspect: Open) -> None:
    page = inspect("cache").page

    gauge = page.get_by_test_id("gauge")
    expect(gauge.get_by_role("meter")).to_have_attribute("aria-valuetext", re.compile("resident .*iB.*free .*iB"))
    expect(gauge).to_contain_text(re.compile(r"\d+ states in \d+ blocks"))


def test_shared_trunks_stand_once_with_their_branches_under_them(inspect: Open) -> None:
    page = inspect("cache").page
    tree = page.get_by_role("tree")
    expect(tree).to_be_visible()

    trunks = tree.locator('[role="treeitem"][aria-level="1"]', has_text="You are a weather service")
    assert trunks.count() == 1 or tree.get_by_role("treeitem").count() > trunks.count()
    expect(tree.locator('[aria-expanded="true"]').first).to_be_visible()
    expect(tree.locator('[role="treeitem"][aria-level="2"]').first).to_be_visible()
    expect(tree.locator(".state-chip").first).to_contain_text(re.compile("state .* round"))
    expect(tree.locator(".tier.resident").first).to_be_visible()
    expect(tree.locator(".node-bytes b").first).to_have_text(re.compile("iB|B"))


def test_a_state_leads_to_its_request(inspect: Open) -> None:
    page = inspect("cache").page

    page.get_by_role("tree").locator(".state-chip a").first.click()
    expect(page.locator("h1")).to_contain_text("Request")


def test_arrow_keys_close_open_and_walk_the_tree(inspect: Open) -> None:
    inspector = inspect("cache")
    page = inspector.page
    items = page.get_by_role("treeitem")
    expect(items.nth(1)).to_be_visible()
    inspector.settled()
    all_open = items.count()

    parent = page.locator('[role="treeitem"][aria-expanded="true"]').first
    parent.focus()
    expect(parent).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(items).not_to_have_count(all_open)
    page.keyboard.press("ArrowRight")
    expect(items).to_have_count(all_open)
    expect(parent).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(parent).not_to_be_focused()


def test_architectures_stand_side_by_side_for_a_length_that_one_chooses(inspect: Open) -> None:
    page = inspect("cache").page
    table = page.get_by_test_id("kv-table")
    expect(table.locator("tbody tr").nth(3)).to_be_visible()
    total = table.locator("tbody tr").nth(1).locator(".kv-total b")
    before = total.inner_text()

    page.get_by_label("context length, tokens").first.fill("100000")
    expect(total).not_to_have_text(before)
    expect(table).to_contain_text("DeepSeek")
