"""A real server process on a free loopback port, for tests that look at it from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import anthropic
import httpx
import openai
from websockets.sync.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 300.0
PATIENCE_SECONDS = 120.0
"""A wait ends as soon as what it waits for is there, so only a failure takes this long; the machine belongs to others too."""


class ServerProcess:
    """`python -m zllm_ref serve` with these arguments and variables. Ended by `stop`, whatever happened."""

    def __init__(self, *arguments: str, directory: Path, variables: Mapping[str, str] | None = None) -> None:
        self.log = directory / "server.log"
        command = [sys.executable, "-m", "zllm_ref", "serve", "--threads", "1", "--dtype", "float32", *arguments]
        plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
        environment = {**plain, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **(variables or {})}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=directory
            )

    def wait_until_listening(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", line)
        assert found, f"first line: got {line!r}; log: {self.errors}"
        self.url = found[1]
        return self.url

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while httpx.get(f"{self.url}/health", timeout=PATIENCE_SECONDS).json()["status"] != "ready":
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.05)

    def wait_until_announced(self) -> None:
        """Until the last line of the start is printed, which is a moment after the first request would be answered."""
        deadline = time.monotonic() + START_SECONDS
        while not re.search(r"\ncurl .*\n", self.errors):
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.05)

    @property
    def errors(self) -> str:
        return self.log.read_text("utf-8", errors="replace")  # it may be read in the middle of a character

    def stop(self, number: int = signal.SIGTERM, seconds: float = PATIENCE_SECONDS) -> int:
        """Sends a signal; → the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="sk-test", max_retries=0, timeout=PATIENCE_SECONDS)

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.url, api_key="sk-test", max_retries=0, timeout=PATIENCE_SECONDS)

    def websocket(self, headers: Mapping[str, str] | None = None) -> ClientConnection:
        """A connection to /v1/responses, which nothing but its two sides ends: no ping of the client's runs out."""
        url = self.url.replace("http", "ws", 1) + "/v1/responses"
        return connect(url, additional_headers=dict(headers or {}), open_timeout=PATIENCE_SECONDS, ping_interval=None)


def started(*arguments: str, directory: Path, variables: Mapping[str, str] | None = None) -> ServerProcess:
    """A server that is ready."""
    server = ServerProcess("--port", "0", *arguments, directory=directory, variables=variables)
    try:
        server.wait_until_listening()
        server.wait_until_ready()
    except BaseException:
        server.stop()
        raise
    return server
