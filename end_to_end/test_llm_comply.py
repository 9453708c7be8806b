"""A public suite that others run too: all of it must pass here, but for images, which no model here can read.

Some of its tests run only for models whose name sounds as if they could reason: the served model is called so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.serving import PATIENCE_SECONDS, ServerProcess, started

NAME = "gpt-5-and-claude-3-5"
COMMAND = Path(sys.executable).with_name("llm-comply")
SIZES = {"open-responses": 13, "openai-chat": 9, "anthropic": 9}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    running = started("--model", "scripted", "--served-model-name", NAME, "--quiet", directory=tmp_path_factory.mktemp("comply"))
    yield running
    running.stop()


@pytest.mark.parametrize("form", SIZES)
def test_everything_but_images_passes(server: ServerProcess, form: str) -> None:
    arguments = ["run", "--base-url", f"{server.url}/v1", "--api-key", "x", "--model", NAME, "--format", form, "--json"]
    arguments += ["--timeout", str(PATIENCE_SECONDS)]  # of one request
    ran = subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, check=False)

    results = {row["id"]: row for row in json.loads(ran.stdout)["results"]}

    assert len(results) == SIZES[form]
    (other,) = [name for name, row in results.items() if row["status"] != "passed"]
    assert other.endswith("image-input")
    assert any("HTTP 400" in error for error in results[other]["errors"]), results[other]
