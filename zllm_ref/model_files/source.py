"""What `--model` means: a name that the project knows, a GGUF file, or a Hugging Face folder."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from zllm_ref.model_files.packaged_model import DEFAULT_MODEL, ModelFileError, PackagedModel

SEEDED_NAMES = (
    "tiny-llama",
    "tiny-llama-wide",
    "tiny-qwen3",
    "tiny-glm4-moe",
    "tiny-deepseek-v32",
    "tiny-deepseek-v4",
)
SCRIPTED_NAME = "scripted"
_GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file that lies on this machine."""

    name: str
    path: Path


@dataclass(frozen=True)
class ModelFolder:
    """A Hugging Face folder: config.json, *.safetensors, tokenizer.json."""

    name: str
    path: Path


@dataclass(frozen=True)
class SeededModel:
    """Random weights made in code from a seed."""

    name: str


@dataclass(frozen=True)
class ScriptedModel:
    """No weights at all: emits the ids that a script dictates."""

    name: str = SCRIPTED_NAME


ModelSource = PackagedModel | GgufFile | ModelFolder | SeededModel | ScriptedModel


def resolve_model(text: str, working_directory: Path) -> ModelSource:
    """The source that `text` names; empty: the default model. Reads at most four bytes, loads nothing.

    Relative paths start at `working_directory`.
    A known name wins over a file of the same name (write `./scripted` for the file). Raises `ModelFileError`.
    """
    if not text or text.lower() == DEFAULT_MODEL.name.lower():
        return DEFAULT_MODEL
    if text in SEEDED_NAMES:
        return SeededModel(text)
    if text == SCRIPTED_NAME:
        return ScriptedModel()
    path = (working_directory / text).resolve()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return _gguf_file(path)
    known = (DEFAULT_MODEL.name, *SEEDED_NAMES, SCRIPTED_NAME)
    close = difflib.get_close_matches(text, known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise ModelFileError(
        f"--model: got {text!r}, which is no known name and no file or folder{hint}; "
        f"allowed {', '.join(known)}, the path of a GGUF file, or of a Hugging Face folder"
    )


def _folder(path: Path) -> ModelFolder:
    if not (path / "config.json").is_file():
        raise ModelFileError(f"--model: got the folder {path} without config.json; allowed a Hugging Face folder, or a GGUF file")
    return ModelFolder(path.name, path)


def _gguf_file(path: Path) -> GgufFile:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ModelFileError(
            f"--model: got {path}, which cannot be read ({error.strerror}); allowed a readable GGUF file"
        ) from error
    if magic != _GGUF_MAGIC:
        hint = f" (for safetensors give the folder, {path.parent})" if path.suffix == ".safetensors" else ""
        raise ModelFileError(
            f"--model: got {path}, which starts with {magic!r}; allowed a GGUF file, which starts with {_GGUF_MAGIC!r}{hint}"
        )
    return GgufFile(path.stem, path)
