"""Debian's Chromium, driven by Playwright. A machine without it fails here, with a sentence that says what to install."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from end_to_end.serving import START_SECONDS


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser. Ends with the context: while it runs, this thread has an event loop that others would stumble over."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.fail("no chromium on the PATH: apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=executable, args=arguments, timeout=START_SECONDS * 1000)
        try:
            yield browser
        finally:
            browser.close()
