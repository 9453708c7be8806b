"""Measures a peer: the same file, the same work, the same number of threads, in a process of its own.

A peer is optional. Where it is not installed, `PeerError` says which command installs it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from zllm_ref.commands.bench_llama_server import measure_llama_server
from zllm_ref.commands.bench_turns import NotMeasured, Turns
from zllm_ref.commands.bench_work import BenchWork, Figures
from zllm_ref.commands.peer_process import PeerError, Progress, last_line, peer_environment, stop
from zllm_ref.config import limit_spinning

OWN = "zllm_ref"
PEERS = ("transformers", "llama.cpp")
TIMEOUT_SECONDS = 3600.0


def measure_all(
    names: Sequence[str], gguf_path: Path, dtype: str, threads: int, work: BenchWork, progress: Progress
) -> tuple[Figures, dict[str, Figures]]:
    """This project's figures and those of the named peers, sample by sample in turn. Takes minutes. Raises `PeerError`."""
    turns = Turns([OWN, *names])

    def measure(name: str) -> Figures:
        def wait_for_turn(step: str, done: int, total: int) -> None:
            turns.pass_on(name)
            progress(step, done, total)

        try:
            turns.wait(name)
            measure_one = measure_own if name == OWN else partial(measure_peer, name)
            figures = measure_one(gguf_path, dtype, threads, work, wait_for_turn)
        except BaseException:
            turns.fail(name)
            raise
        turns.leave(name)
        return figures

    with ThreadPoolExecutor(1 + len(names)) as pool:
        futures = {name: pool.submit(measure, name) for name in (OWN, *names)}
    failures = [error for error in (future.exception() for future in futures.values()) if error is not None]
    for failure in sorted(failures, key=lambda error: isinstance(error, NotMeasured)):
        raise failure
    figures = {name: future.result() for name, future in futures.items()}
    return figures.pop(OWN), figures


def measure_peer(name: str, gguf_path: Path, dtype: str, threads: int, work: BenchWork, progress: Progress) -> Figures:
    """The peer's figures for `work` on the model in `gguf_path`. Takes minutes. Raises `PeerError`.

    `progress` is called before every sample, and returns when it may be taken. `transformers` computes with the dequantised
    weights in `dtype`; llama.cpp with the file's own blocks, whatever `dtype` is.
    """
    if name not in _MEASURES:
        raise PeerError(f"--against: got {name!r}, allowed {', '.join(PEERS)}")
    return _MEASURES[name](gguf_path, dtype, threads, work, progress)


def measure_own(gguf_path: Path, dtype: str, threads: int, work: BenchWork, progress: Progress) -> Figures:
    """This project's figures for the same work, from a child process like the peers', with the settings that `serve` has."""
    limit_spinning(threads)
    order = {"gguf_path": str(gguf_path), "dtype": dtype, "threads": threads, "work": work.to_json()}
    return _run_child("zllm_ref.commands.bench_own", order, threads, progress)


def _measure_transformers(gguf_path: Path, dtype: str, threads: int, work: BenchWork, progress: Progress) -> Figures:
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise PeerError(f"--against transformers: {package} is not installed; python -m pip install 'zllm-ref[dev]'")
    order = {"gguf_path": str(gguf_path), "dtype": dtype, "threads": threads, "work": work.to_json()}
    return _run_child("zllm_ref.commands.bench_transformers", order, threads, progress)


def _measure_llama_cpp(gguf_path: Path, dtype: str, threads: int, work: BenchWork, progress: Progress) -> Figures:
    return measure_llama_server(gguf_path, threads, work, progress)


_MEASURES: dict[str, Callable[[Path, str, int, BenchWork, Progress], Figures]] = {
    "transformers": _measure_transformers,
    "llama.cpp": _measure_llama_cpp,
}


def _run_child(module: str, order: dict[str, Any], threads: int, progress: Progress) -> Figures:
    """Runs `module` with its order as JSON. It answers with JSON lines: `{"progress": […]}`, then waits for a line from us;
    and `{"figures": …}`, at least once.
    """
    figures: Figures = {}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=peer_environment(threads),
        )
        alarm = threading.Timer(TIMEOUT_SECONDS, child.kill)
        alarm.start()
        try:
            assert child.stdin is not None and child.stdout is not None  # noqa: PT018  because of PIPE
            for line in child.stdout:
                if not line.startswith("{"):  # something that a library prints
                    continue
                message = json.loads(line)
                if "progress" in message:
                    progress(*message["progress"])
                    with suppress(BrokenPipeError):  # it has ended: why is said below
                        child.stdin.write("go\n")
                        child.stdin.flush()
                else:
                    figures |= message["figures"]
            child.wait()
        finally:
            alarm.cancel()
            stop(child)
        if child.returncode != 0 or not figures:
            raise PeerError(f"{module} ended with {child.returncode}: {last_line(errors)}")
    return figures
