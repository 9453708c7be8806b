"""What the server costs a streamed token: the scripted model's answer of 5,600 tokens through each protocol.

The scripted model computes nothing, so that what is measured is the runtime's loop, the engine, the protocol and the socket.
CPU time of the server process, which a busy machine does not stretch; wall time beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

TEXT = "word and more " * 400
REQUESTS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9999},
}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(url: str, pid: int, path: str, body: dict[str, object]) -> tuple[int, float, float]:
    """Events of one answer, microseconds of CPU and of wall time for each."""
    cpu, wall, events = cpu_seconds(pid), time.perf_counter(), 0
    with httpx.stream("POST", url + path, json={"model": "scripted", "stream": True, **body}, timeout=120) as response:
        for line in response.iter_lines():
            events += line.startswith("data:")
    return events, (cpu_seconds(pid) - cpu) / events * 1e6, (time.perf_counter() - wall) / events * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"answers": [{"segments": [{"text": TEXT}]}]}))
        command = [
            sys.executable,
            "-m",
            "zllm_ref",
            "serve",
            "--model",
            "scripted",
            "--port",
            "0",
            "--quiet",
            "--script",
            str(script),
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            while httpx.get(f"{url}/health").status_code != 200:
                time.sleep(0.1)
            table = Table(title="server cost of a streamed event (median of 3)")
            for column in ("endpoint", "events", "CPU, µs", "wall, µs"):
                table.add_column(column, justify="left" if column == "endpoint" else "right")
            for path, body in REQUESTS.items():
                samples = sorted(measure(url, server.pid, path, body) for _ in range(3))
                events, cpu, wall = samples[1]
                table.add_row(path, f"{events:,}", f"{cpu:.0f}", f"{wall:.0f}")
            Console().print(table)
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
