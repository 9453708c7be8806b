"""The reference server itself, on the default model."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence

from peer import MODEL_NAME, Settings, finish, free_port, judge, running

TARGET = "zllm_ref"


def main(settings: Settings) -> int:
    return judge_reference(settings, TARGET, (), MODEL_NAME, "the GGUF file, computed in bfloat16, the model's own template")


def judge_reference(settings: Settings, target: str, arguments: Sequence[str], model: str, served: str) -> int:
    """Starts this repository's server with `arguments` in the Python that runs this, and judges it."""
    import torch

    import zllm_ref

    port, key = free_port(), secrets.token_urlsafe(16)
    command = [sys.executable, "-m", "zllm_ref", "serve", "--port", str(port), "--threads", str(settings.threads), "--quiet"]
    command += ["--api-key", key]
    address = f"http://127.0.0.1:{port}"
    versions = {"zllm_ref": zllm_ref.__version__, "torch": torch.__version__}
    with running(settings, target.replace(" ", "-"), [*command, *arguments], f"{address}/health"):
        return judge(settings, target, address, versions, model=model, served=served, api_key=key)


if __name__ == "__main__":
    finish(TARGET, main)
