"""One peer: an environment of its own, a server on a free loopback port, the suite against it, the end of the server.

Each script beside this one names what to install and how to start it; what they share is here. The Python that runs them is
one in which `zllm_ref` is installed with its `dev` extra: it brings the default model's file and the suite. A peer lives in its
own environment under `--work`, installed by pip from whatever index pip is set up to use.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
MODEL_NAME = "SmolLM2-135M-Instruct"
OUT_OF_TIME = 3


class PeerError(Exception):
    """A peer that could not be installed or did not start. `last_words` is what it printed, for the terminal only."""

    def __init__(self, problem: str, last_words: str = "") -> None:
        super().__init__(problem)
        self.last_words = last_words


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    work: Path
    """Environments and model folders; kept when it was given, so that a second run installs nothing."""
    reports: Path
    threads: int
    install_seconds: float
    start_seconds: float
    request_seconds: float
    suite_seconds: float
    memory_gibibytes: float
    suite_arguments: tuple[str, ...]


def read_settings(description: str | None, arguments: Sequence[str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder for environments and models (default: a new temporary one)")
    parser.add_argument("--report-dir", type=Path, default=ROOT / "reports" / "peers", help="one folder a target inside")
    parser.add_argument("--threads", type=int, default=1, help="of each server; one stays fair on a shared machine")
    parser.add_argument("--install-seconds", type=float, default=1800)
    parser.add_argument("--start-seconds", type=float, default=300)
    parser.add_argument("--request-seconds", type=float, default=120, help="the suite's --timeout")
    parser.add_argument("--suite-seconds", type=float, default=1800, help="the whole suite; what it had by then is kept")
    parser.add_argument("--memory-gib", type=float, default=8, help="of each server's data: some try to read any prompt whole")
    parser.add_argument("suite", nargs="*", help="further arguments of the suite, after --")
    given = parser.parse_args(arguments)
    work = given.work or Path(tempfile.mkdtemp(prefix="peers-"))
    work.mkdir(parents=True, exist_ok=True)
    return Settings(
        work.resolve(), given.report_dir.resolve(), given.threads, given.install_seconds, given.start_seconds,
        given.request_seconds, given.suite_seconds, given.memory_gib, tuple(given.suite),
    )  # fmt: skip


def make_environment(settings: Settings, name: str, requirements: Sequence[str]) -> Path:
    """The Python of a virtual environment that holds `requirements`. Raises `PeerError`."""
    folder = settings.work / name
    python = folder / "bin" / "python"
    say(f"{name}: installing {' '.join(requirements)}")
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=settings.install_seconds)
        pip = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        subprocess.run(pip, check=True, timeout=settings.install_seconds)
    except subprocess.CalledProcessError as error:
        raise PeerError("pip could not install it", str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"not installed after {settings.install_seconds:g} seconds", str(error)) from error
    return python


def versions_of(python: Path, *packages: str) -> dict[str, str]:
    """What is really installed there."""
    code = "import json, sys, importlib.metadata as m; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    found = subprocess.run([str(python), "-c", code, *packages], check=True, capture_output=True, text=True, timeout=60)
    versions: dict[str, str] = json.loads(found.stdout)
    return versions


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    settings: Settings,
    name: str,
    command: Sequence[str | Path],
    ready_url: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[None]:
    """The server `command`, from the first 200 of `ready_url` to the end of the block. Raises `PeerError`."""
    log = settings.work / f"{name}.log"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(settings.threads))
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}  # a peer serves the file it is given, and asks no hub
    variables = {**os.environ, **threads, **offline, **(environment or {})}
    say(f"{name}: starting")
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables, cwd=folder,
            start_new_session=True, preexec_fn=lambda: _limit_memory(settings.memory_gibibytes),
        )  # fmt: skip
        try:
            _wait(process, ready_url, settings.start_seconds, log)
            yield
        finally:
            _stop(process)


def judge(
    settings: Settings,
    target: str,
    base_url: str,
    versions: Mapping[str, str],
    *,
    model: str = MODEL_NAME,
    served: str,
    api_key: str | None = None,
) -> int:
    """Runs the suite and writes `peer.json` beside its results. The suite's exit code, or `OUT_OF_TIME`."""
    folder = report_folder(settings, target)
    command = [sys.executable, "-m", "conformance", "run", "--base-url", base_url, "--model", model, "--name", target]
    command += ["--report-dir", str(folder), "--timeout", str(settings.request_seconds), *settings.suite_arguments]
    command += ["--api-key", api_key] if api_key else []
    say(f"{target}: the suite")
    began, load, commit = datetime.now(UTC), os.getloadavg()[0], _commit()
    with (folder / "suite.txt").open("w", encoding="utf-8") as output:
        try:
            finished = subprocess.run(
                command, cwd=ROOT, stdout=output, stderr=output, timeout=settings.suite_seconds, check=False
            )
            code = finished.returncode
        except subprocess.TimeoutExpired:
            code = OUT_OF_TIME
    ended = datetime.now(UTC)
    facts = {
        "target": target,
        "versions": dict(versions),
        "served": served,
        "threads": settings.threads,
        "memory_gibibytes": settings.memory_gibibytes,
        "machine": _machine(),
        "load_before_and_after": [round(load, 1), round(os.getloadavg()[0], 1)],
        "began": began.isoformat(timespec="seconds"),
        "seconds": round((ended - began).total_seconds()),
        "request_seconds": settings.request_seconds,
        "suite_arguments": list(settings.suite_arguments),
        "suite_exit": code,
        "suite_commit": commit,
    }
    _write_facts(folder, facts)
    say(f"{target}: the suite ended with {code} after {facts['seconds']} s")
    return code


def finish(target: str, run: Callable[[Settings], int]) -> None:
    """Runs a script and leaves: 0 also where a peer deviates (that is a result), 2 where it was not run, 3 where time was up."""
    settings = read_settings(sys.modules["__main__"].__doc__)
    try:
        code = run(settings)
    except PeerError as error:
        _write_facts(report_folder(settings, target), {"target": target, "machine": _machine(), "problem": str(error)})
        print(f"{target}: {error}\n{error.last_words}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if code in (0, 1) else code)


def report_folder(settings: Settings, target: str) -> Path:
    folder = settings.reports / target.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(text: str) -> None:
    print(f"[{datetime.now(UTC):%H:%M:%S}] {text}", flush=True)


def _limit_memory(gibibytes: float) -> None:
    """A prompt of a million words costs the server a failed allocation, and not the machine its memory."""
    limit = int(gibibytes * (1 << 30))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _wait(process: subprocess.Popen[bytes], url: str, seconds: float, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PeerError(f"its server ended with {process.returncode} before it was ready", _last_lines(log))
        try:
            with opener.open(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass  # not listening, or not ready
        time.sleep(0.5)
    raise PeerError(f"its server was not ready after {seconds:g} seconds", _last_lines(log))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the server and what it started, which share a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _last_lines(log: Path) -> str:
    return " | ".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:])[-800:]


def _machine() -> str:
    """The machine in words."""
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        rows = (line.partition(":") for line in information.read_text(encoding="utf-8").splitlines())
        name = next((value.strip() for key, _, value in rows if key.strip() == "model name"), name)
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {name}, {gibibytes:.0f} GiB of memory, {system}"


def _write_facts(folder: Path, facts: Mapping[str, object]) -> None:
    (folder / "peer.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
