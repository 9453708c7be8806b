"""The page, by what a person sees on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, ElementHandle, Locator, Page, expect

PANELS = ("wire", "conversation", "segments", "tokens", "context")
PATIENCE_MS = 20_000

_PIECE = """
  async (panel, text) => {
    const drawn = () => [...panel.querySelectorAll('.text-row .mono')].filter(row => row.textContent.includes(text));
    for (let top = 0; !drawn().length && top < panel.scrollHeight; top += panel.clientHeight / 2) {
      panel.scrollTop = top;
      await new Promise(resolve => setTimeout(resolve, 60));
    }
    const row = drawn().pop();
    if (!row) return null;
    let left = row.textContent.indexOf(text);
    const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      if (left < walker.currentNode.length) return walker.currentNode.parentElement.closest('[data-a]');
      left -= walker.currentNode.length;
    }
    return null;
  }
"""


@dataclass
class InspectorPage:
    """One tab. `problems` are errors in the console, and addresses that are not the server's."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    @classmethod
    def opened(cls, browser: Browser, url: str, view: str = "", **options: Any) -> InspectorPage:
        options = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"} | options
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        inspector = cls(context.new_page(), url)
        inspector.page.on("pageerror", lambda error: inspector.problems.append(str(error)))
        inspector.page.on("console", lambda message: inspector._note(message.type, message.text))
        inspector.page.on("request", lambda request: inspector._allow(request.url))
        inspector.open(view)
        return inspector

    def open(self, view: str) -> None:
        """`view` is what stands behind the `#`."""
        self.page.goto(f"{self.url}/inspect#/{view}")
        expect(self.page.locator("main")).to_be_visible()

    def close(self) -> None:
        self.page.context.close()
        assert self.problems == [], self.problems

    def panel(self, name: str) -> Locator:
        return self.page.locator(f'[data-panel="{name}"]')

    def lit(self, name: str) -> Locator:
        """What is lit in a panel: inside the lit tokens, or holding some of them."""
        if name == "context":
            return self.page.locator(".context-body .lit, .context-body .holds")
        return self.panel(name).locator(".lit, .holds")

    def lit_text(self, name: str) -> str:
        return "".join(self.panel(name).locator(".lit").all_inner_texts())

    def word(self, panel: str, text: str) -> ElementHandle:
        """The linked piece that begins a text, scrolled to. (The scripted model's tokens are bytes.)"""
        found = self.panel(panel).evaluate_handle(_PIECE, text).as_element()
        assert found is not None, f"{panel} has no linked {text!r}"
        return found

    def scroll(self, panel: str, to: str = "end") -> None:
        self.panel(panel).evaluate("(element, to) => { element.scrollTop = to === 'end' ? element.scrollHeight : 0; }", to)

    @property
    def link_line(self) -> Locator:
        return self.page.get_by_test_id("link-line")

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return width

    def _note(self, kind: str, text: str) -> None:
        is_refusal = text.startswith("Failed to load resource") and " 4" in text  # which the page explains, and tests look at
        if kind == "error" and not is_refusal:
            self.problems.append(text)

    def _allow(self, address: str) -> None:
        if not address.startswith((self.url, "data:", "blob:")):
            self.problems.append(f"asked {address}")
