"""`pytest conformance/` as a vendor calls it, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from conformance.mutants.server import right_server

ROOT = Path(__file__).parents[2]


def run_pytest(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "conformance/", "--base-url", url, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=600)


def test_a_right_server_is_green_and_verdicts_are_counted(tmp_path: Path) -> None:
    with right_server() as url:
        done = run_pytest(url, "--protocols", "messages", "--features", "models,count_tokens", "--report-dir", str(tmp_path))

    assert done.returncode == 0, done.stdout
    assert "2 pass" in done.stdout
    assert (tmp_path / "matrix.html").is_file()


def test_a_wrong_server_is_red_and_the_failure_says_how_to_ask_again() -> None:
    with right_server("counts-without-tools") as url:
        done = run_pytest(url, "--protocols", "messages", "--features", "models,count_tokens")

    assert done.returncode == 1
    assert "AN23" in done.stdout
    assert "curl -N" in done.stdout


def test_a_target_that_is_not_there_ends_with_2() -> None:
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        assert run_pytest(f"http://127.0.0.1:{taken.getsockname()[1]}", "--features", "models").returncode == 2
