"""The page, by what a person sees on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, ElementHandle, Locator, Page, expect

from end_to_end.serving import PATIENCE_SECONDS

PANELS = ("wire", "conversation", "segments", "tokens", "context")
PATIENCE_MS = PATIENCE_SECONDS * 1000

SLOWNESS = float(os.environ.get("ZLLM_SLOW_PAGE", "1"))
"""By how much the page's processor is slowed down. Above 1 its answers come late, too: shows what is done too early."""

_LATE_ANSWERS = """
  const fetched = window.fetch;
  window.fetch = async (...asked) => {
    await new Promise(resolve => setTimeout(resolve, Math.random() * 800));
    return fetched(...asked);
  };
"""

_ON_ITS_WAY = "main .waiting, main .result.stale"
"""Shown where something has not come yet."""

_PIECE = """
  async (panel, [text, patience]) => {
    const drawn = () => [...panel.querySelectorAll('.text-row .mono')].filter(row => row.textContent.includes(text));
    const isCovered = () => {
      const rows = [...panel.querySelectorAll('.row')].map(row => row.getBoundingClientRect());
      const [view, all] = [panel.getBoundingClientRect(), panel.querySelector('.height').getBoundingClientRect()];
      const [top, bottom] = [Math.max(view.top, all.top), Math.min(view.bottom, all.bottom)];
      return rows.length && rows[0].top < top + 2 && rows[rows.length - 1].bottom > bottom - 2;
    };
    const end = performance.now() + patience;
    for (let top = 0; !drawn().length && top < panel.scrollHeight; top += panel.clientHeight / 2) {
      panel.scrollTop = top;
      do await new Promise(resolve => setTimeout(resolve, 20)); while (!isCovered() && performance.now() < end);
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


_SHOWS_EDGE = """
  (panel, to) => {
    const rows = [...panel.querySelectorAll('.row')];
    const row = to === 'end' ? rows[rows.length - 1] : rows[0];
    if (!row) return false;
    const [all, place] = [panel.querySelector('.height').getBoundingClientRect(), row.getBoundingClientRect()];
    return Math.abs(to === 'end' ? place.bottom - all.bottom : place.top - all.top) < 2;
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
        if SLOWNESS > 1:
            inspector.page.add_init_script(_LATE_ANSWERS)
            context.new_cdp_session(inspector.page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWNESS})
        inspector.open(view)
        return inspector

    def open(self, view: str) -> None:
        """`view` is what stands behind the `#`. Waits until the page shows it, not for what it shows: see `settled`."""
        self.page.goto(f"{self.url}/inspect#/{view}")
        expect(self.page.locator("main")).to_have_attribute("data-view", f"#/{view or 'requests'}")

    def settled(self) -> None:
        """Waits until nothing is on its way any more: from then on, what is seen stays where it is."""
        expect(self.page.locator("main h1")).to_be_visible()
        expect(self.page.locator(_ON_ITS_WAY)).to_have_count(0)

    def eventually(self, is_so: Callable[[], bool], what: object = "") -> None:
        """For what no `expect` can say."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, what
            self.page.wait_for_timeout(50)

    def type_within(self, seconds: float, *keys: str) -> None:
        """Keys as from a keyboard, so far apart by their own times, whatever the machine does between them."""
        session, begun = self.page.context.new_cdp_session(self.page), time.time()
        for number, key in enumerate(keys):
            for kind in ("keyDown", "keyUp"):
                at = begun + number * seconds
                session.send("Input.dispatchKeyEvent", {"type": kind, "key": key, "text": key, "timestamp": at})
        session.detach()

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
        found = None
        for _ in range(2):  # scrolling there may fetch tokens, which make finer pieces
            self.settled()
            expect(self.panel(panel).locator(".row").first).to_be_visible()
            found = self.panel(panel).evaluate_handle(_PIECE, [text, PATIENCE_MS]).as_element()
            assert found is not None, f"{panel} has no linked {text!r}"
        assert found is not None
        return found

    def scroll(self, panel: str, to: str = "end") -> None:
        """Waits until the first or last row is drawn."""
        self.settled()
        expect(self.panel(panel).locator(".row").first).to_be_visible()
        self.panel(panel).evaluate("(element, to) => { element.scrollTop = to === 'end' ? element.scrollHeight : 0; }", to)
        self.eventually(lambda: bool(self.panel(panel).evaluate(_SHOWS_EDGE, to)), f"{panel} does not scroll to its {to}")
        self.settled()

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
