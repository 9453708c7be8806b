"""What all views share: keyboard, language, colours, narrow windows, labels."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage
from end_to_end.serving import ServerProcess

Open = Callable[..., InspectorPage]


def test_the_shortcuts_are_listed_under_a_question_mark(inspect: Open) -> None:
    page = inspect().page

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    expect(page.get_by_role("dialog")).to_contain_text("let the pin go")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_keyboard_leads_through_all_views(inspect: Open) -> None:
    inspector = inspect()
    page = inspector.page
    expect(page.get_by_test_id("live-list")).to_be_visible()

    expect(page.locator("tbody tr").nth(1)).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tbody tr").nth(1)).to_have_class("marked")
    expect(page.locator("tbody tr").nth(1).get_by_role("link").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Request")
    page.keyboard.press("d")
    expect(page.locator('.tabs [aria-current="page"]')).to_have_text("Decode")
    page.keyboard.press("p")
    expect(page.locator('.tabs [aria-current="page"]')).to_have_text("What broke the prefix")
    for second, title in (("c", "Cache"), ("p", "Playground"), ("r", "Requests")):
        inspector.type_within(0.3, "g", second)
        expect(page.locator("h1")).to_have_text(title)


def test_a_letter_long_after_the_first_one_leads_nowhere(inspect: Open) -> None:
    inspector = inspect()
    before = inspector.page.evaluate("history.length")

    inspector.type_within(5.0, "g", "c")
    inspector.type_within(0.3, "g", "p")

    expect(inspector.page.locator("h1")).to_have_text("Playground")
    assert inspector.page.evaluate("history.length") == before + 1


@pytest.mark.parametrize("link", ["requests/%E0%A4%A", "requests/..%2F..%2F..%2Fv1%2Fmodels", "requests/<b>x", "%"])
def test_a_link_that_names_no_request_leads_to_the_list(inspect: Open, link: str) -> None:
    page = inspect("cache").page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.evaluate("link => { location.hash = '#/' + link; }", link)
    expect(page.get_by_test_id("live-list")).to_be_visible()
    page.reload()
    expect(page.get_by_test_id("live-list")).to_be_visible()

    assert asked
    assert all("/inspect" in url and ".." not in url for url in asked), asked


def test_a_letter_that_is_typed_into_a_field_is_no_shortcut(inspect: Open) -> None:
    page = inspect("playground/merges").page

    page.get_by_test_id("merge-text").fill("")
    page.get_by_test_id("merge-text").press_sequentially("gc?t")
    expect(page.get_by_test_id("merge-text")).to_have_value("gc?t")
    expect(page.locator("h1")).to_have_text("Playground")


def test_the_language_is_switched_and_kept(inspect: Open) -> None:
    page = inspect("cache").page
    expect(page.locator("html")).to_have_attribute("lang", "en")

    page.get_by_role("button", name="Language").click()
    expect(page.locator("h1")).to_have_text("缓存")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    page.reload()
    expect(page.locator("h1")).to_have_text("缓存")


def test_a_chinese_browser_is_answered_in_chinese(inspect: Open) -> None:
    page = inspect(locale="zh-CN").page

    expect(page.locator("h1")).to_have_text("请求")


def test_dark_and_light_follow_the_system_and_the_switch(inspect: Open) -> None:
    page = inspect(color_scheme="dark").page

    def ground() -> int:
        colour: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    assert ground() < 200
    page.get_by_role("button", name="Colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert ground() > 600
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert ground() < 200


def test_who_wants_no_motion_gets_none(inspect: Open) -> None:
    probe = """kind => { const run = document.createElement('span'); run.className = 'run decoding'; run.innerHTML = '<i></i>';
               document.body.append(run); return getComputedStyle(run.firstChild).animationName; }"""

    assert inspect(reduced_motion="reduce").page.evaluate(probe) == "none"
    assert inspect(reduced_motion="no-preference").page.evaluate(probe) != "none"


VIEWS = (
    "", "requests/{id}", "requests/{id}/prefix", "requests/{id}/decode", "cache", "playground", "playground/compare",
    "playground/merges", "playground/attention",
)  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390])
def test_no_view_is_wider_than_its_window(inspect: Open, recorded: Talk, width: int) -> None:
    inspector = inspect(viewport={"width": width, "height": 800})

    overflow = {}
    for view in VIEWS:
        inspector.open(view.format(id=recorded.other_clock))
        inspector.settled()
        overflow[view] = inspector.overflow()
    assert overflow == dict.fromkeys(VIEWS, 0)


def test_on_a_narrow_window_one_panel_is_shown_at_a_time_and_the_pin_goes_along(inspect: Open, recorded: Talk) -> None:
    inspector = inspect(f"requests/{recorded.chat_answer}", viewport={"width": 390, "height": 844}, has_touch=True)
    page = inspector.page
    inspector.word("conversation", "How is").tap()

    expect(inspector.panel("segments")).to_be_hidden()
    page.get_by_role("button", name="Template", exact=True).tap()
    expect(inspector.panel("segments")).to_be_visible()
    expect(inspector.panel("segments").locator(".pinned")).not_to_have_count(0)


def test_everything_that_can_be_used_has_a_name(inspect: Open, recorded: Talk) -> None:
    nameless = """() => [...document.querySelectorAll(
          'button, a, input, select, textarea, [role=group], [role=tree], [role=meter]')]
        .filter(element => element.offsetParent !== null)
        .filter(element => !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length
                             || element.className === 'step-controls'))
        .map(element => element.outerHTML.slice(0, 120))"""
    inspector = inspect()
    for view in VIEWS:
        inspector.open(view.format(id=recorded.other_clock))
        inspector.settled()
        assert inspector.page.evaluate(nameless) == [], view


def test_a_server_with_keys_asks_for_one_and_shows_that_keys_requests_only(browser: Browser, keyed_server: ServerProcess) -> None:
    for key in ("sk-one", "sk-two"):
        client = keyed_server.openai().with_options(api_key=key)
        client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": f"I am {key}"}])
    inspector = InspectorPage.opened(browser, keyed_server.url)
    page = inspector.page

    expect(page.get_by_role("heading", name="This server has API keys")).to_be_visible()
    page.get_by_label("API key").fill("sk-wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The server does not know this key.")
    page.get_by_label("API key").fill("sk-one")
    page.keyboard.press("Enter")

    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody tr a").click()
    expect(inspector.panel("conversation")).to_contain_text("I am sk-one")
    assert "sk-one" not in page.url
    assert page.evaluate("Object.values(localStorage)") == []
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    inspector.close()
