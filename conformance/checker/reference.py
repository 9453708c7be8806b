"""Starts the reference server as a subprocess, for runs without a URL. Knows its command line, nothing else of it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from conformance.checker.client import TargetError

_LISTENING = re.compile(r"listening on (http://\S+)")
KEY = "key-of-the-reference-run"
"""It lets this key in alone, so that the scenario about wrong keys can be judged."""
_SERVE = f"serve --model scripted --dialect chatml-qwen3 --port 0 --threads 1 --api-key {KEY}"
"""A dialect with reasoning, so that the scenarios about it can be judged."""
_COMMAND = (sys.executable, "-m", "zllm_ref", *_SERVE.split())


@contextmanager
def reference_server(arguments: Sequence[str] = (), start_seconds: float = 300.0) -> Iterator[str]:
    """The base URL of a running reference server; it ends with the block. Raises TargetError with what it printed."""
    process = subprocess.Popen([*_COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    found = threading.Event()
    thread = threading.Thread(target=_read, args=(process, lines, found), daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + start_seconds
        while not found.is_set():
            if process.poll() is not None or time.monotonic() > deadline:
                raise TargetError("the reference server did not start:\n" + "".join(lines[-20:]))
            found.wait(0.1)
        yield next(match.group(1) for line in lines if (match := _LISTENING.search(line)))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read(process: subprocess.Popen[str], lines: list[str], found: threading.Event) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if _LISTENING.search(line):
            found.set()
