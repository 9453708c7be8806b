"""Hugging Face folders: what transformers writes is what is loaded, and a damaged folder says what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from zllm_ref.runtime.weights import CheckpointError, open_checkpoint


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> tuple[Path, dict[str, torch.Tensor]]:
    """A tiny random llama, written by transformers, in several files with an index; and its own tensors."""
    folder = tmp_path_factory.mktemp("folder")
    torch.manual_seed(3)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 20000.0},
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="60KB")
    assert (folder / "model.safetensors.index.json").is_file()
    return folder, {name: tensor.detach() for name, tensor in model.state_dict().items()}


@pytest.fixture
def folder(written: tuple[Path, dict[str, torch.Tensor]], tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(written[0], tmp_path / "model"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_folder_gives_the_bits_that_transformers_wrote(written: Any, dtype: torch.dtype) -> None:
    path, expected = written
    checkpoint = open_checkpoint(path, dtype)

    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in checkpoint.tensors.items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, expected[name].to(dtype)), name


def test_config_is_the_same_for_both_spellings_of_the_rotary_base(written: Any, folder: Path) -> None:
    rewrite_config(folder, lambda config: config | {"rope_parameters": None, "rope_theta": 20000.0, "rope_scaling": None})

    new, old = (open_checkpoint(path, torch.float32).config for path in (written[0], folder))

    assert (new["rope_theta"], new["rope_scaling"], new["head_dim"]) == (20000.0, None, 16)
    assert (old["rope_theta"], old["rope_scaling"], old["head_dim"]) == (20000.0, None, 16)


def test_a_scaled_rotary_embedding_is_handed_on(folder: Path) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    rewrite_config(folder, lambda config: config | {"rope_parameters": None, "rope_scaling": scaling, "rope_theta": 5.0})

    config = open_checkpoint(folder, torch.float32).config

    assert config["rope_scaling"] == {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert config["rope_theta"] == 5.0


def test_a_single_file_without_index_is_the_same_model(folder: Path, written: Any) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
        file.unlink()
    (folder / "model.safetensors.index.json").unlink()
    save_file(tensors, folder / "model.safetensors")

    checkpoint = open_checkpoint(folder, torch.float32)

    assert all(torch.equal(tensor, written[1][name].float()) for name, tensor in checkpoint.tensors.items())


def test_a_stored_copy_of_a_tied_head_is_left_aside(folder: Path) -> None:
    rewrite_config(folder, lambda config: config | {"tie_word_embeddings": True})

    assert "lm_head.weight" not in open_checkpoint(folder, torch.float32).tensors


def test_digest_follows_weights_and_config(folder: Path, written: Any) -> None:
    digest = open_checkpoint(written[0], torch.bfloat16).digest
    assert open_checkpoint(folder, torch.float32).digest == digest

    rewrite_config(folder, lambda config: config | {"rms_norm_eps": 1e-4})
    other_config = open_checkpoint(folder, torch.float32).digest
    rewrite_config(folder, lambda config: config | {"rms_norm_eps": 1e-6})
    assert open_checkpoint(folder, torch.float32).digest == digest
    file = sorted(folder.glob("*.safetensors"))[0]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    other_weights = open_checkpoint(folder, torch.float32).digest

    assert len({digest, other_config, other_weights}) == 3


@pytest.mark.parametrize("place", ["file", "settings", "list"])
def test_the_chat_template_is_found_where_it_may_lie(folder: Path, place: str) -> None:
    assert open_checkpoint(folder, torch.float32).chat_template is None
    if place == "file":
        (folder / "chat_template.jinja").write_text("{{ messages }}")
    else:
        entries = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ messages }}"}]
        template = "{{ messages }}" if place == "settings" else entries
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))

    checkpoint = open_checkpoint(folder, torch.float32)

    assert checkpoint.chat_template == "{{ messages }}"
    assert checkpoint.tokenizer_source.folder == folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, r"config.json: model_type: got architecture 'gpt2', allowed .*llama"),
        ({"hidden_size": 32}, r"tensor 'model.embed_tokens.weight': got shape \[96, 64\], allowed \[96, 32\]"),
        ({"num_hidden_layers": 3}, r"got no tensor 'model.layers.2.input_layernorm.weight', allowed one of shape \[64\]"),
        ({"num_hidden_layers": 1}, r"got tensor 'model.layers.1.* allowed only the tensors that the architecture declares"),
        ({"num_hidden_layers": 1 << 31}, "allowed at most 1024"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: got '2', allowed an integer"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: got 3 for 4 heads"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps: got nan, allowed a positive finite number"),
        ({"rope_parameters": 7}, "rope_scaling: got 7"),
        ({"hidden_act": "gelu"}, "hidden_act: got 'gelu', allowed 'silu'"),
        ({"attention_bias": True}, "attention_bias: got True, allowed False"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    rewrite_config(folder, lambda config: config | changes)

    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder, torch.float32)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00", "[" * 100_000])
def test_a_config_that_is_not_an_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)

    with pytest.raises(CheckpointError, match=r"config.json.* allowed a JSON object"):
        open_checkpoint(folder, torch.float32)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "model.bin", 3])
def test_the_index_leads_nowhere_else(folder: Path, name: Any) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))

    with pytest.raises(CheckpointError, match=r"allowed the name of a \.safetensors file beside it"):
        open_checkpoint(folder, torch.float32)


def test_a_file_that_the_index_names_must_be_there(folder: Path) -> None:
    sorted(folder.glob("*.safetensors"))[1].unlink()

    with pytest.raises(CheckpointError, match="got no such file, allowed a file that the index names"):
        open_checkpoint(folder, torch.float32)


def test_pickled_weights_are_not_read(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"would be executed")

    with pytest.raises(CheckpointError, match=r"got no \*.safetensors"):
        open_checkpoint(folder, torch.float32)


def test_integers_are_not_taken_for_weights(folder: Path) -> None:
    for file in folder.glob("*.safetensors"):
        save_file({name: tensor.to(torch.int8) for name, tensor in load_file(file).items()}, file)

    with pytest.raises(CheckpointError, match="got type I8, allowed F32, BF16, F16"):
        open_checkpoint(folder, torch.float32)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_weight_file_cut_off_anywhere_is_refused(written: Any, tmp_path: Path, cut: float) -> None:
    folder = Path(shutil.copytree(written[0], tmp_path / "cut", dirs_exist_ok=True))
    file = sorted(folder.glob("*.safetensors"))[0]
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * cut)])

    with pytest.raises(CheckpointError, match="does not open"):
        open_checkpoint(folder, torch.float32)


def rewrite_config(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
