"""The options of `pytest conformance/`. Loaded by the conftest at the repository's root, so that any mix of paths works."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.requirements import PROFILES


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "judge a server (default: the reference server, started for the run)")
    group.addoption("--base-url", default=None, help="e.g. http://127.0.0.1:8000")
    group.addoption("--model", default=None, help="default: the first that /models lists")
    group.addoption("--api-key", default=None)
    group.addoption("--protocols", default="", help="comma list of chat, responses, messages")
    group.addoption("--features", default="", help="comma list of features")
    group.addoption("--profile", default="default", choices=PROFILES)
    group.addoption("--known-failing", default=None, type=Path, help="file of protocol/scenario  # why")
    group.addoption("--report-dir", default=None, type=Path, help="where reports and traces go")
    group.addoption("--recordings", default=None, type=Path, help="folder of recorded streams (or $ZLLM_RECORDINGS)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unproven: a check that could not be made here, and says so")
