"""What a saved state costs is what the formula says, for every published model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zllm_ref.__main__ import main
from zllm_ref.runtime.models import published
from zllm_ref.runtime.models.published import PUBLISHED_MODELS, PublishedModel

BYTES_PER_TOKEN = {
    "SmolLM2-135M": 23_040,
    "SmolLM2-360M": 40_960,
    "SmolLM2-1.7B": 196_608,
    "Llama-3.2-1B": 32_768,
    "Qwen3-0.6B": 114_688,
    "GLM-4.5-Air": 188_416,
    "DeepSeek-V3.2": 85_888,
    "DeepSeek-V4-Flash": 6_880,
}


DRAFTS_ADD = {"GLM-4.5-Air": (4_096, 0), "DeepSeek-V3.2": (1_152 + 256, 0), "DeepSeek-V4-Flash": (0, 128 * 512 * 2)}
"""Bytes per token, and fixed, of the layers for further tokens."""


@pytest.mark.parametrize("model", PUBLISHED_MODELS, ids=lambda model: model.name)
def test_the_declared_state_has_the_bytes_of_the_formula(model: PublishedModel) -> None:
    assert model.state.bytes_per_token == model.formula_bytes == BYTES_PER_TOKEN[model.name]


@pytest.mark.parametrize("model", PUBLISHED_MODELS, ids=lambda model: model.name)
def test_what_drafting_adds_has_the_bytes_of_its_formula(model: PublishedModel) -> None:
    added = model.draft_state

    assert (added.bytes_per_token, added.fixed_bytes) == model.draft_formula_bytes == DRAFTS_ADD.get(model.name, (0, 0))
    assert all(tensor.advisory for tensor in added.tensors)
    assert model.holds


def test_a_declaration_that_drifts_from_its_formula_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drifted = replace(PUBLISHED_MODELS[5], draft_formula=((2, 2048, 2, 1),))
    monkeypatch.setattr(published, "PUBLISHED_MODELS", (drifted,))

    assert main(["models"]) == 1

    assert "not what the formula gives: GLM-4.5-Air" in capsys.readouterr().out


def test_the_windows_of_v4_flash_are_43_rings_of_128_rows() -> None:
    state = next(model for model in PUBLISHED_MODELS if model.name == "DeepSeek-V4-Flash").state

    window = next(tensor for tensor in state.fixed if tensor.name == "window")
    assert window.row_bytes == 43 * 128 * 512 * 2


def test_the_command_names_every_architecture_and_every_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "220")

    assert main(["models"]) == 0

    printed = capsys.readouterr().out
    for architecture in ("llama", "qwen3", "glm4_moe", "deepseek_v32", "deepseek_v4"):
        assert architecture in printed
    for size in (*BYTES_PER_TOKEN.values(), *map(sum, DRAFTS_ADD.values())):
        assert f"{size:,}" in printed
