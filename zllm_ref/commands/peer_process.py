"""The process in which a peer runs: its environment, its end, and the error that names what is missing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from zllm_ref.config import process_environment

Progress = Callable[[str, int, int], None]
"""`(step in words, samples done, samples in all)`."""


class PeerError(Exception):
    """A peer that cannot be measured; the text says what to do."""


def peer_environment(threads: int) -> dict[str, str]:
    """This process's environment with the thread count pinned for every library that might choose its own."""
    return {
        **process_environment(),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # a benchmark reads the file it is given, and asks no hub
    }


def stop(process: subprocess.Popen[str]) -> None:
    """Ends the process if it still runs, and waits for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # what nobody has read any more
                stream.close()


def last_line(errors: TextIO) -> str:
    """The last line that a process wrote to its error stream."""
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return lines[-1][:500] if lines else "no output"
