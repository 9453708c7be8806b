"""One browser and one server for all; both end with this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from end_to_end.inspect.chromium import chromium
from end_to_end.inspect.conversations import Talk, story, talk
from end_to_end.inspect.inspector_page import InspectorPage
from end_to_end.serving import ServerProcess, started

CONTEXT = "140000"
"""Long enough for a prompt of 100,000 tokens."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("inspect")
    arguments = ("--model", "scripted", "--script", str(story(directory)), "--context-length", CONTEXT, "--quiet")
    running = started(*arguments, directory=directory)
    yield running
    running.stop()
    assert "Traceback" not in running.errors


@pytest.fixture(scope="package")
def recorded(server: ServerProcess) -> Talk:
    return talk(server)


@pytest.fixture
def inspect(browser: Browser, server: ServerProcess, recorded: Talk) -> Iterator[Callable[..., InspectorPage]]:
    """Opens the page at a view; every tab is closed at the end, and must have had no problem."""
    opened: list[InspectorPage] = []

    def open_(view: str = "", **options: object) -> InspectorPage:
        opened.append(InspectorPage.opened(browser, server.url, view, **options))
        return opened[-1]

    yield open_
    for inspector in opened:
        inspector.close()


@pytest.fixture(scope="package")
def drafting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A model that computes (the scripted one is told its tokens): fence, drafts, probabilities."""
    directory = tmp_path_factory.mktemp("inspect-drafts")
    running = started("--model", "tiny-llama", "--draft", "prompt_lookup", "--quiet", directory=directory)
    yield running
    running.stop()
    assert "Traceback" not in running.errors


@pytest.fixture(scope="package")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("inspect-keys")
    running = started("--model", "scripted", "--api-key", "sk-one", "--api-key", "sk-two", "--quiet", directory=directory)
    yield running
    running.stop()
