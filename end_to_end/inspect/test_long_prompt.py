"""A prompt of 100,000 tokens: how soon the panels are there, how they scroll, and that only what is in sight is drawn.

The times are printed (`pytest -s`), not judged: the machine belongs to others too. CPU times of the page's thread are printed
beside those of the clock, since they say what an idle machine would need. What is judged is what makes them small.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage
from end_to_end.serving import PATIENCE_SECONDS, ServerProcess

NUM_TOKENS = 100_000
TEXT_PANELS = ("wire", "conversation", "segments", "tokens")
MOST_NODES = 2_500
"""Of a panel, whatever the prompt's length."""

WATCH = """
  window.longTasks = []; window.firstRows = {};
  new PerformanceObserver(list => list.getEntries().forEach(entry => window.longTasks.push([entry.startTime, entry.duration])))
    .observe({type: 'longtask', buffered: true});
  new MutationObserver(() => {
    for (const panel of document.querySelectorAll('[data-panel]')) {
      if (panel.querySelector('.row')) window.firstRows[panel.dataset.panel] ??= performance.now();
    }
  }).observe(document, {childList: true, subtree: true});
"""
SCROLL = """
  async panel => {
    const element = document.querySelector(`[data-panel="${panel}"]`);
    const end = element.scrollHeight - element.clientHeight;
    const before = window.longTasks.length;
    const gaps = []; let nodes = 0; let last = performance.now();
    for (let step = 0; step < 100; step++) {
      element.scrollTop = step < 70 ? step * 80 : end * (step - 69) / 30;
      await new Promise(requestAnimationFrame);
      const now = performance.now(); gaps.push(now - last); last = now;
      nodes = Math.max(nodes, element.querySelectorAll('*').length);
    }
    await new Promise(resolve => setTimeout(resolve, 200));
    const long = window.longTasks.slice(before).map(([, duration]) => duration);
    gaps.sort((one, other) => one - other);
    return {height: end, nodes, median: gaps[50], worst: gaps[99], long, atEnd: element.querySelector('.window').innerText};
  }
"""


@pytest.fixture(scope="module")
def long_request(server: ServerProcess, recorded: Talk) -> str:
    """Sends a prompt of some 100,000 tokens; → its id."""
    text = "".join(f"def function_{number}(value):  # 日本\n    return value + {number}\n" for number in range(NUM_TOKENS // 58))
    answer = (
        server.openai()
        .with_options(timeout=PATIENCE_SECONDS * 5)
        .chat.completions.with_raw_response.create(
            model="scripted",
            messages=[{"role": "user", "content": f"{text}\nThe last line of the long prompt."}],
            max_completion_tokens=8,
        )
    )
    usage = answer.parse().usage
    assert usage is not None
    assert usage.prompt_tokens >= NUM_TOKENS * 0.9, usage
    return answer.headers["x-request-id"].removeprefix("req_")


@dataclass(frozen=True)
class Tasks:
    """What the page's main thread did: CPU and clock of each task, in ms, longest first."""

    tasks: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, trace: bytes) -> Tasks:
        events = json.loads(trace)["traceEvents"]
        main = {
            (event["pid"], event["tid"])
            for event in events
            if event.get("name") == "thread_name" and event["args"]["name"] == "CrRendererMain"
        }
        tasks = [
            (event.get("tdur", 0) / 1000, event.get("dur", 0) / 1000)  # one that still ran has none
            for event in events
            if event.get("ph") == "X" and "RunTask" in event["name"] and (event["pid"], event["tid"]) in main
        ]
        assert tasks, "the trace has no task of the page"
        return cls(tuple(sorted(tasks, reverse=True)))

    def __str__(self) -> str:
        cpu, clock = self.tasks[0]
        return f"CPU {sum(cpu for cpu, _ in self.tasks):.0f} ms in all, longest task {cpu:.0f} ms ({clock:.0f} ms by the clock)"


@contextlib.contextmanager
def traced(browser: Browser, page: Page) -> Iterator[list[Tasks]]:
    """Yields a list that holds the tasks afterwards."""
    found: list[Tasks] = []
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    try:
        yield found
    finally:
        found.append(Tasks.of(browser.stop_tracing()))


@pytest.fixture(scope="module")
def long(browser: Browser, server: ServerProcess, long_request: str) -> Iterator[InspectorPage]:
    inspector = InspectorPage.opened(browser, server.url)
    inspector.page.add_init_script(WATCH)
    inspector.page.goto("about:blank")
    with traced(browser, inspector.page) as tasks:
        inspector.open(f"requests/{long_request}")
        for panel in (*TEXT_PANELS, "context"):
            expect(inspector.panel(panel).locator(".row").first).to_be_visible()
    print(f"\nall panels: {tasks[0]}")
    yield inspector
    inspector.close()


def test_every_panel_of_a_long_prompt_is_there(long: InspectorPage) -> None:
    first: dict[str, float] = long.page.evaluate("window.firstRows")

    print(f"\nfirst rows, ms after navigation: { {name: round(value) for name, value in first.items()} }")
    assert set(first) == {*TEXT_PANELS, "context"}


@pytest.mark.parametrize("panel", TEXT_PANELS)
def test_only_what_is_in_sight_is_drawn(browser: Browser, long: InspectorPage, panel: str) -> None:
    with traced(browser, long.page) as tasks:
        found: dict[str, Any] = long.page.evaluate(SCROLL, panel)

    print(
        f"\n{panel}: {found['height']:,.0f} px, 100 steps: {tasks[0]}; frames {found['median']:.0f} ms median, "
        f"{found['worst']:.0f} ms worst; {len(found['long'])} long tasks by the clock; at most {found['nodes']} nodes"
    )
    assert found["height"] > 10_000
    assert found["nodes"] < MOST_NODES


def test_the_end_of_a_long_prompt_is_reached_and_linked(long: InspectorPage) -> None:
    template = long.panel("segments")
    long.scroll("segments")
    expect(template).to_contain_text("The last line of the long prompt.")

    long.word("segments", "The last line").hover()
    expect(long.panel("tokens").locator(".lit")).not_to_have_count(0)


def test_tokens_are_fetched_by_the_page(long: InspectorPage, server: ServerProcess, long_request: str) -> None:
    total = httpx.get(f"{server.url}/inspect/api/requests/{long_request}/tokens?start=0&end=1", timeout=PATIENCE_SECONDS).json()[
        "total"
    ]

    asked: list[str] = []
    long.page.on("request", lambda request: asked.append(request.url) if "/tokens?" in request.url else None)
    long.page.reload()
    expect(long.panel("tokens").locator(".token:not(.waiting)").first).to_be_visible()
    assert 0 < len(asked) < total / 1000 / 4
