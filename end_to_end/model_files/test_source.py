"""What `--model` accepts, and what it says to the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from zllm_ref.model_files import (
    DEFAULT_MODEL,
    GgufFile,
    ModelFileError,
    ModelFolder,
    ScriptedModel,
    SeededModel,
    resolve_model,
)
from zllm_ref.model_files.source import SEEDED_NAMES
from zllm_ref.runtime.weights import SEEDED_MODELS


@pytest.mark.parametrize("text", ["", "SmolLM2-135M-Instruct", "smollm2-135m-instruct"])
def test_the_default_model_has_a_name(tmp_path: Path, text: str) -> None:
    assert resolve_model(text, tmp_path) is DEFAULT_MODEL


def test_models_made_in_code_have_names(tmp_path: Path) -> None:
    assert resolve_model("tiny-llama", tmp_path) == SeededModel("tiny-llama")
    assert resolve_model("scripted", tmp_path) == ScriptedModel()
    assert set(SEEDED_NAMES) == set(SEEDED_MODELS)


def test_a_gguf_file_is_known_by_its_magic_and_not_by_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"GGUF....")

    assert resolve_model("model.bin", tmp_path) == GgufFile("model", path)
    assert resolve_model(str(path), Path("/")) == GgufFile("model", path)


def test_a_folder_with_a_config_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")

    assert resolve_model("some-model", tmp_path) == ModelFolder("some-model", folder)
    assert resolve_model("./some-model/", tmp_path) == ModelFolder("some-model", folder)


def test_a_known_name_wins_over_a_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "scripted").write_bytes(b"GGUF")

    assert resolve_model("scripted", tmp_path) == ScriptedModel()
    assert resolve_model("./scripted", tmp_path) == GgufFile("scripted", tmp_path / "scripted")


def test_what_is_neither_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        resolve_model("tiny-lama", tmp_path)

    assert str(caught.value) == (
        "--model: got 'tiny-lama', which is no known name and no file or folder (did you mean tiny-llama?); "
        f"allowed SmolLM2-135M-Instruct, {', '.join(SEEDED_NAMES)}, scripted, "
        "the path of a GGUF file, or of a Hugging Face folder"
    )


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"got the folder .* without config\.json; allowed a Hugging Face folder"):
        resolve_model(".", tmp_path)


def test_a_weight_file_alone_points_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")

    with pytest.raises(ModelFileError, match=rf"allowed a GGUF file.*for safetensors give the folder, {tmp_path}"):
        resolve_model("model.safetensors", tmp_path)
