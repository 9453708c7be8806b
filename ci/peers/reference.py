"""The reference server itself, twice: on the default model, and on the `scripted` one that says what a scenario needs."""

from __future__ import annotations

import sys

from peer import MODEL_NAME, Settings, finish, free_port, judge, running

TARGET = "zllm_ref"
TARGETS = (
    (f"{TARGET} scripted", "scripted", "scripted", "no weights: a model that emits what a script or the request's tools dictate"),
    (TARGET, "", MODEL_NAME, "the GGUF file, computed in bfloat16, the model's own template"),
)


def main(settings: Settings) -> int:
    worst = 0
    for target, argument, model, served in TARGETS:
        port = free_port()
        command = [sys.executable, "-m", "zllm_ref", "serve", "--port", str(port), "--threads", str(settings.threads), "--quiet"]
        command += ["--model", argument] if argument else []
        address = f"http://127.0.0.1:{port}"
        with running(settings, target.replace(" ", "-"), command, f"{address}/health"):
            worst = max(worst, judge(settings, target, address, _versions(), model=model, served=served))
    return worst


def _versions() -> dict[str, str]:
    import torch

    import zllm_ref

    return {"zllm_ref": zllm_ref.__version__, "torch": torch.__version__}


if __name__ == "__main__":
    finish(TARGET, main)
