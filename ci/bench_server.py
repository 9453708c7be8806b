"""What the server costs a streamed event: the scripted model's answers through each protocol, at three lengths, at two paces.

    CPU of a served event − CPU of the same token, only generated = what protocol, guard, hand-over, recording and socket cost

Both are CPU time of a process, user and system, all threads, counted in nanoseconds by the kernel; the least of up to five,
in turns, so that what else the machine does at the moment burdens neither side alone. The inspector records, as by default.

    flat out   the model takes no time: events gather while the server is at work, and leave together
    paced      a pause between the steps, as a real model makes one: each event wakes the server, and finds its caches cold

`--check`: exit 1 where an event costs the server more than 100 µs at either pace, or where an event of a long answer costs much
more than one of a short answer: nothing may be written twice.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from zllm_ref.canonical.event import Failed, Finished
from zllm_ref.canonical.message import Message, Role, Text
from zllm_ref.canonical.request import Protocol, Request
from zllm_ref.config import EngineSettings, ModelSettings
from zllm_ref.engine import Engine

LENGTHS = (1_000, 4_000, 16_000)
PACES = {"flat out": 0.0, "paced": 0.001}
"""Seconds between two steps."""
MOST_MICROSECONDS = 100.0
MOST_GROWTH = 1.5
TOKENS = 16_000
LIMITS = {"/v1/messages": {"max_tokens": 99_999}}
MOST_REPEATS = 5
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
SAID = (("user", "x"), ("assistant", "y"))


@dataclass(frozen=True)
class Sample:
    """Microseconds of CPU for each event of one answer, and how many events left in one write."""

    microseconds: float
    events_per_write: float = 0.0


def script(pace: float) -> str:
    """An answer of each length: which one is told by how often the assistant has spoken."""
    answers = [{"segments": [{"text": ("word and more " * (length // 14 + 1))[:length]}]} for length in LENGTHS]
    return json.dumps({"seconds_per_step": pace, "answers": answers})


def turns(length: int) -> list[tuple[str, str]]:
    return [*(SAID * LENGTHS.index(length)), SAID[0]]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (the clock that `clock_getcpuclockid` names on Linux)."""
    return time.clock_gettime((~pid << 3) | 2)


def served(port: int, pid: int, path: str, length: int) -> Sample:
    """One streamed answer, heard to its end."""
    turns_field = "input" if path == "/v1/responses" else "messages"
    messages = [{"role": role, "content": text} for role, text in turns(length)]
    body = json.dumps({"model": "scripted", "stream": True, turns_field: messages, **LIMITS.get(path, {})}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nconnection: close\r\n"
    before = cpu_seconds(pid)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        received = bytearray()
        while piece := connection.recv(1 << 16):
            received += piece
    seconds = cpu_seconds(pid) - before
    writes = list(chunks(bytes(received)))
    events = sum(text.startswith(b"data:") + text.count(b"\ndata:") for text in writes)
    assert events > length, f"{path}: got {events} events, allowed more than {length}"
    return Sample(seconds / events * 1e6, events / len(writes))


def chunks(response: bytes) -> Iterator[bytes]:
    """The pieces of a chunked HTTP response: each is one write of the server."""
    place = response.index(b"\r\n\r\n") + 4
    while size := int(response[place : (end := response.index(b"\r\n", place))], 16):
        yield response[end + 2 : end + 2 + size]
        place = end + 2 + size + 2


def generated(engine: Engine, number: int, length: int) -> Sample:
    """One answer, heard by nobody."""
    ended, count = threading.Event(), 0

    def listen(events: object) -> None:
        nonlocal count
        for event in events:  # type: ignore[attr-defined]
            count += 1
            if isinstance(event, Finished | Failed):
                ended.set()

    messages = tuple(Message(Role(role), (Text(text),)) for role, text in turns(length))
    before = cpu_seconds(os.getpid())
    engine.submit(Request(f"bench{number}", Protocol.CHAT, "scripted", messages), listen)
    assert ended.wait(300)
    assert count > length, f"engine: got {count} events, allowed more than {length}"
    return Sample((cpu_seconds(os.getpid()) - before) / count * 1e6)


@contextmanager
def serving(file: Path, arguments: list[str]) -> Iterator[tuple[int, int]]:
    """A server of the scripted model in a process of its own. → (port, process id)."""
    fixed = ["--model", "scripted", "--threads", "1", "--port", "0", "--quiet", "--script", str(file)]
    command = [sys.executable, "-m", "zllm_ref", "serve", *fixed, *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
        while httpx.get(f"http://127.0.0.1:{port}/health").status_code != 200:
            time.sleep(0.1)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait(20)


def measure(folder: Path, pace: float, tokens: int, arguments: list[str]) -> dict[tuple[str, int], list[Sample]]:
    """Samples by path and length, `tokens` together for each; path "" is what is only generated."""
    file = folder / f"script{pace}.json"
    file.write_text(script(pace))
    engine = Engine(EngineSettings(model=ModelSettings(model="scripted", threads=1), script=file))
    engine.load()
    found: dict[tuple[str, int], list[Sample]] = {}
    try:
        with serving(file, arguments) as (port, pid):
            for path in PATHS:
                served(port, pid, path, LENGTHS[0])  # once, for what is made at first use
            generated(engine, -1, LENGTHS[0])
            for length in LENGTHS:
                for repeat in range(min(MOST_REPEATS, max(1, tokens // length))):
                    found.setdefault(("", length), []).append(generated(engine, repeat, length))
                    for path in PATHS:
                        found.setdefault((path, length), []).append(served(port, pid, path, length))
    finally:
        engine.close()
    return found


def least(samples: list[Sample]) -> float:
    return min(sample.microseconds for sample in samples)


def row_of(found: dict[tuple[str, int], list[Sample]], path: str, length: int) -> str:
    """`server (whole process), events a write`."""
    samples, alone = found[path, length], least(found["", length])
    if not path:
        return f"{alone:.0f}"
    together = sum(sample.events_per_write for sample in samples) / len(samples)
    return f"{least(samples) - alone:.0f} ({least(samples):.0f}), {together:.1f}"


def problems_of(pace: str, found: dict[tuple[str, int], list[Sample]]) -> list[str]:
    problems = []
    for path in PATHS:
        for length in LENGTHS:
            own = least(found[path, length]) - least(found["", length])
            if own > MOST_MICROSECONDS:
                problems.append(f"{pace}, {path}, {length:,} tokens: got {own:.0f} µs, allowed {MOST_MICROSECONDS:g}")
        growth = least(found[path, LENGTHS[-1]]) / least(found[path, LENGTHS[0]])
        if growth > MOST_GROWTH:
            problems.append(f"{pace}, {path}: an event of a long answer costs {growth:.2f} times one of a short answer")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help=f"at most {MOST_MICROSECONDS:g} µs, and linear")
    parser.add_argument("--pace", choices=PACES, action="append", help="measure this pace alone")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each length: many short answers, or few long ones")
    parser.add_argument("arguments", nargs="*", help="further arguments of serve, after --")
    args = parser.parse_args()
    problems: list[str] = []
    for pace in args.pace or PACES:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), PACES[pace], args.tokens, args.arguments)
        table = Table(title=f"{pace}: µs of CPU an event, server (whole process), and events a write")
        table.add_column("endpoint")
        for length in LENGTHS:
            table.add_column(f"{length:,} tokens", justify="right")
        for path in ("", *PATHS):
            table.add_row(path or "generated, heard by nobody", *(row_of(found, path, length) for length in LENGTHS))
        Console().print(table)
        problems += problems_of(pace, found)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if args.check and problems else 0


if __name__ == "__main__":
    sys.exit(main())
