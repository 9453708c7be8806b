"""Runs every client once: its model calls a tool that writes a file, hears the result, and says a last sentence.

A run is whole when the client ended with 0, the file is there, the last sentence was shown, and the server saw as many answers
as such a run takes. Where the kernel allows it, server and clients live in a network namespace with a loopback alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from client import CLIENTS, Client, Place
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
LAST_SENTENCE = "The file is there, and that is all."
INSTALL_SECONDS = 600
RUN_SECONDS = 90
MOST_ANSWERS = 6
"""Two of the main loop, and a title, a warm-up or a summary beside them; a client that storms makes hundreds."""
IN_NAMESPACE = "ZLLM_CLIENTS_IN_NAMESPACE"

console = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Seen:
    """What a run looked like. `problem` empty: it was whole."""

    client: Client
    version: str
    answers: int
    prompt_tokens: int
    cached_tokens: int
    seconds: float
    problem: str

    def row(self) -> str:
        share = f"{self.cached_tokens / self.prompt_tokens:.0%}" if self.prompt_tokens else ""
        end = self.problem or "whole"
        return (
            f"| {self.client.name} | {self.version} | {self.client.protocol} | {self.answers} | {self.prompt_tokens:,} "
            f"| {share} | {self.seconds:.1f} | {end} |"
        )


def install(folder: Path, clients: list[Client]) -> None:
    """What is not there yet. `--ignore-scripts`: nothing of a package runs before we run it ourselves."""
    for packages in dict.fromkeys(client.packages for client in clients):
        target = _folder_of(folder, packages)
        if (target / "node_modules").is_dir():
            continue
        console.print(f"installing {', '.join(packages)} …")
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(target), *packages]
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=True, timeout=INSTALL_SECONDS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _folder_of(folder: Path, packages: tuple[str, ...]) -> Path:
    return folder / re.sub(r"[^a-z0-9]+", "-", packages[0].lower()).strip("-")


class Server:
    """The scripted model on a free port, for one client, so that its counts are that client's."""

    def __init__(self, folder: Path, model: str) -> None:
        script = ROOT / "ci" / "clients" / "script.json"
        command = [sys.executable, "-m", "zllm_ref", "serve", "--model", "scripted", "--port", "0", "--threads", "1"]
        command += ["--served-model-name", model, "--script", str(script)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.log = folder / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        while httpx.get(f"{self.url}/health").status_code != 200:
            time.sleep(0.05)

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, value in re.findall(r"^zllm_(\w+?)_total(?:\{.*\})? (\S+)$", httpx.get(f"{self.url}/metrics").text, re.M):
            found[name] = found.get(name, 0) + int(float(value))
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


def see(client: Client, folder: Path) -> Seen:
    """One run in a home of its own."""
    modules = _folder_of(folder, client.packages) / "node_modules"
    with tempfile.TemporaryDirectory(prefix="zllm-client-") as name:
        home = Path(name)
        work = home / "work"
        work.mkdir()
        server = Server(home, client.model)
        try:
            place = Place(modules, server.url, home, work)
            for path, text in client.files(place).items():
                (home / path).parent.mkdir(parents=True, exist_ok=True)
                (home / path).write_text(text, "utf-8")
            (work / "node_modules").symlink_to(modules)
            environment = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1", **client.environment(place)}
            start = time.monotonic()
            code, output = _run(client.command(place), work, environment)
            seconds = time.monotonic() - start
            counts = server.counts()
            problem = _problem(code, output, work, counts)
            if problem:
                console.print(output[-3000:], markup=False)
                console.print(server.log.read_text("utf-8")[-2000:], markup=False)
        finally:
            server.stop()
    used = counts.get("prompt_tokens", 0), counts.get("cached_tokens", 0)
    return Seen(client, client.packages[0].rpartition("@")[2], counts.get("answers", 0), *used, seconds, problem)


def _run(command: list[str], work: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """The exit code (None: it did not end in time) and everything it printed."""
    process = subprocess.Popen(
        command,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=RUN_SECONDS)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return None, process.communicate()[0]


def _problem(code: int | None, output: str, work: Path, counts: dict[str, int]) -> str:
    if code is None:
        return f"no end within {RUN_SECONDS} s"
    if code != 0:
        return f"exit code {code}"
    made = work / "by-the-tool.txt"
    if not made.is_file() or made.read_text("utf-8").strip() != "written":
        return "the tool has not run"
    if LAST_SENTENCE not in output:
        return "the last sentence was not shown"
    if not 2 <= counts.get("answers", 0) <= MOST_ANSWERS:
        return f"{counts.get('answers', 0)} answers"
    return ""


def in_namespace(arguments: list[str]) -> int | None:
    """Runs this script again where only a loopback exists; None where that cannot be had, or we are there already."""
    if os.environ.get(IN_NAMESPACE) or shutil.which("unshare") is None:
        return None
    probe = subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    if probe.returncode != 0:
        console.print("no network namespace here: the clients could reach the network, though none of them should want to")
        return None
    shell = 'ip link set lo up && exec "$@"'
    command = ["unshare", "-n", "sh", "-c", shell, "sh", sys.executable, __file__, *arguments]
    return subprocess.run(command, env={**os.environ, IN_NAMESPACE: "1"}, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", type=Path, default=ROOT / "reports" / "clients", help="where npm puts the clients")
    parser.add_argument("--only", default="", help="names or beginnings of names, separated by commas")
    parser.add_argument("--output", type=Path, default=None, help="write the table here, between its marks")
    arguments = parser.parse_args()
    wanted = [name.strip().lower() for name in arguments.only.split(",")]
    clients = [client for client in CLIENTS if any(client.name.lower().startswith(name) for name in wanted)]
    if os.environ.get(IN_NAMESPACE) is None:
        install(arguments.install, clients)
        code = in_namespace(sys.argv[1:])
        if code is not None:
            return code
    seen = []
    for client in clients:
        seen.append(see(client, arguments.install.resolve()))
        console.print(seen[-1].row(), markup=False)
    if arguments.output is not None:
        _write(arguments.output, seen)
    return 1 if any(one.problem for one in seen) else 0


def _write(path: Path, seen: list[Seen]) -> None:
    text = path.read_text("utf-8")
    begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    lines = [
        "| client | version | protocol | answers | prompt tokens | of them cached | seconds | the run |",
        "|---|---|---|---|---|---|---|---|",
        *(one.row() for one in seen),
    ]
    path.write_text(head + begin + "\n".join(lines) + "\n" + end + tail, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
