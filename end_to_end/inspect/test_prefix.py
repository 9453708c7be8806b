"""What broke the prefix: named, shown side by side, priced."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage

Open = Callable[..., InspectorPage]


def test_a_changed_clock_is_named_and_both_times_stand_side_by_side(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.other_clock}/prefix").page

    expect(page.locator(".cause")).to_have_attribute("data-cause", "changed_clock")
    expect(page.locator(".cause h2")).to_have_text("A clock in the prompt changed")
    fork = page.get_by_test_id("fork")
    expect(fork.locator(".before")).to_contain_text("The time is")
    expect(fork.locator(".earlier mark")).to_have_text("5")
    expect(fork.locator(".now mark")).to_have_text("6")
    expect(fork.locator("h3")).to_have_text(re.compile(r"The fork, at token \d+"))


def test_what_is_said_of_a_cause_is_said_in_the_language_of_the_page(inspect: Open, recorded: Talk) -> None:
    said = inspect(f"requests/{recorded.other_clock}/prefix").page.locator(".cause .said")
    chinese = inspect(f"requests/{recorded.other_clock}/prefix", locale="zh-CN").page

    expect(said).to_have_text("It said “2026-11-30 02:05” and says “2026-11-30 02:06”.")
    expect(chinese.locator(".cause .said")).to_have_text("先前写的是 “2026-11-30 02:05”，现在是 “2026-11-30 02:06”。")
    expect(chinese.locator(".cause h2")).to_have_text("提示中的时钟变了")
    assert not re.search("[a-z]{3}", chinese.locator(".cause").inner_text())


def test_the_list_points_at_a_break(inspect: Open, recorded: Talk) -> None:
    page = inspect().page

    expect(page.locator(f"#request-{recorded.other_clock} .cause-badge")).to_have_attribute(
        "title", "A clock in the prompt changed"
    )
    expect(page.locator(f"#request-{recorded.chat_answer} .cause-badge")).to_have_count(0)


def test_the_nearest_state_is_named_by_its_request(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.other_clock}/prefix").page

    page.get_by_test_id("fork").locator("header a").click()
    expect(page.locator("h1")).to_contain_text(re.compile(r"Request [1-4]$"))


def test_a_second_turn_reused_what_it_could(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.chat_answer}/prefix").page

    expect(page.locator(".cause")).to_contain_text("Everything that could be reused was reused.")


def test_the_parts_add_up_to_the_prompt(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.chat_answer}/prefix").page
    table = page.get_by_test_id("composition")
    expect(table).to_be_visible()

    def column(index: int, rows: str) -> list[int]:
        cells = table.locator(f"{rows} tr td:nth-of-type({index})").all_inner_texts()
        return [int(text.replace(",", "")) for text in cells]

    names = table.locator("tbody th").all_inner_texts()
    assert names == ["system", "tools", "workspace", "history", "tool results", "new input", "template"]
    assert sum(column(1, "tbody")) == column(1, "tfoot")[0] > 0
    assert sum(column(3, "tbody")) == column(3, "tfoot")[0] > 0
    shown = list(table.locator("tbody tr:not(.nothing) th").all_inner_texts())
    assert {"system", "tools", "tool results"} <= set(shown)


def test_no_name_of_a_part_is_cut_off(inspect: Open, recorded: Talk) -> None:
    """It is there as a whole or not at all: → the names that are seen, and those that are seen in part."""
    places = """() => [...document.querySelectorAll('.composition-bar span')].map(name => {
        const range = document.createRange(); range.selectNodeContents(name);
        const [frame, text] = [name.getBoundingClientRect(), range.getClientRects()[0]];
        return {name: name.textContent, seen: text.top < frame.bottom - 2, whole: text.right <= frame.right + 1};
    })"""
    for locale in ("en-GB", "zh-CN"):
        for width in (1280, 390):
            inspector = inspect(
                f"requests/{recorded.chat_answer}/prefix", locale=locale, viewport={"width": width, "height": 800}
            )
            expect(inspector.page.locator(".composition-bar span").first).to_be_visible()
            names = inspector.page.evaluate(places)
            assert any(name["seen"] for name in names)
            assert [name for name in names if name["seen"] and not name["whole"]] == [], (locale, width)


def test_other_prices_make_other_costs(inspect: Open, recorded: Talk) -> None:
    page = inspect(f"requests/{recorded.chat_answer}/prefix").page
    total = page.get_by_test_id("composition").locator("tfoot td").nth(5)
    expect(total).to_be_visible()
    before = total.inner_text()

    page.get_by_label("price of a million input tokens").fill("300")
    expect(page.get_by_label("price of a million input tokens")).to_be_focused()
    page.keyboard.press("Tab")
    expect(total).not_to_have_text(before)
