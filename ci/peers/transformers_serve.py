"""`transformers serve` on a Hugging Face folder made from the default model's dequantised weights."""

from __future__ import annotations

from default_model import hugging_face_folder
from peer import Settings, finish, free_port, judge, make_environment, running, versions_of

TARGET = "transformers serve"
REQUIREMENTS = ("torch==2.13.0", "transformers[serving]==5.24.0", "accelerate")


def main(settings: Settings) -> int:
    folder = hugging_face_folder(settings)
    python = make_environment(settings, "transformers-serve", REQUIREMENTS)
    versions = versions_of(python, "transformers", "torch", "accelerate")
    port = free_port()
    # Started beside the folder, so that the model's name is a name and not a path of this machine.
    command = [python.with_name("transformers"), "serve", folder.name, "--device", "cpu", "--dtype", "bfloat16"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with running(settings, "transformers-serve", command, f"{address}/health", folder=folder.parent):
        served = "dequantised weights in bfloat16, without continuous batching, the model's own template"
        return judge(settings, TARGET, address, versions, model=folder.name, served=served)


if __name__ == "__main__":
    finish(TARGET, main)
