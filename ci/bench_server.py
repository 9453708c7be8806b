"""What the server costs a streamed event: the scripted model's answers through each protocol, at three lengths.

    CPU of a served event − CPU of the same token that is only generated = what protocol, guard, hand-over and socket cost

CPU time of the processes, which a busy machine stretches little. `--check`: exit 1 where an event costs the server more than
100 µs, or where an event of a long answer costs much more than one of a short answer: nothing may be written twice.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
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
MOST_MICROSECONDS = 100.0
MOST_GROWTH = 1.5
REPEATS = 3
REQUESTS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 99_999},
}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def served(url: str, pid: int, path: str, body: dict[str, object]) -> float:
    """Microseconds of the server's CPU for each event of one answer."""
    before, events = cpu_seconds(pid), 0
    with httpx.stream("POST", url + path, json={"model": "scripted", "stream": True, **body}, timeout=300) as response:
        for line in response.iter_lines():
            events += line.startswith("data:")
    return (cpu_seconds(pid) - before) / events * 1e6


def generated(engine: Engine, number: int) -> float:
    """Microseconds of CPU for each token of the same answer, heard by nobody."""
    ended, count = threading.Event(), 0

    def listen(events: object) -> None:
        nonlocal count
        for event in events:  # type: ignore[attr-defined]
            count += 1
            if isinstance(event, Finished | Failed):
                ended.set()

    before = time.process_time()
    engine.submit(Request(f"bench{number}", Protocol.CHAT, "scripted", (Message(Role.USER, (Text("x"),)),)), listen)
    assert ended.wait(300)
    return (time.process_time() - before) / count * 1e6


def median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]


def measure(folder: Path, length: int) -> dict[str, float]:
    """Microseconds an event of an answer of `length` tokens: by path, and generated alone."""
    script = folder / f"script{length}.json"
    script.write_text(json.dumps({"answers": [{"segments": [{"text": ("word and more " * (length // 14 + 1))[:length]}]}]}))
    engine = Engine(EngineSettings(model=ModelSettings(model="scripted", threads=1), script=script))
    engine.load()
    try:
        found = {"generated": median([generated(engine, number) for number in range(REPEATS)])}
    finally:
        engine.close()
    arguments = ["--model", "scripted", "--threads", "1", "--port", "0", "--quiet", "--script", str(script)]
    command = [sys.executable, "-m", "zllm_ref", "serve", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        while httpx.get(f"{url}/health").status_code != 200:
            time.sleep(0.1)
        for path, body in REQUESTS.items():
            served(url, server.pid, path, body)  # once, for what is made at first use
            found[path] = median([served(url, server.pid, path, body) for _ in range(REPEATS)])
    finally:
        server.terminate()
        server.wait(20)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help=f"at most {MOST_MICROSECONDS:g} µs, and linear")
    is_checked = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        rows = {length: measure(Path(folder), length) for length in LENGTHS}
    table = Table(title=f"CPU of a streamed event, µs (median of {REPEATS}): whole process, and of it the server")
    table.add_column("endpoint")
    for length in LENGTHS:
        table.add_column(f"{length:,} tokens", justify="right")
    for path in REQUESTS:
        table.add_row(path, *(f"{row[path]:.0f}, {row[path] - row['generated']:.0f}" for row in rows.values()))
    table.add_row("generated, heard by nobody", *(f"{row['generated']:.0f}" for row in rows.values()))
    Console().print(table)
    problems = [
        f"{path}, {length:,} tokens: {row[path] - row['generated']:.0f} µs, allowed {MOST_MICROSECONDS:g}"
        for length, row in rows.items()
        for path in REQUESTS
        if row[path] - row["generated"] > MOST_MICROSECONDS
    ]
    first, last = rows[LENGTHS[0]], rows[LENGTHS[-1]]
    problems += [
        f"{path}: an event of a long answer costs {last[path] / first[path]:.2f} times one of a short answer"
        for path in REQUESTS
        if last[path] > MOST_GROWTH * first[path]
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if is_checked and problems else 0


if __name__ == "__main__":
    sys.exit(main())
