"""The layer for further tokens computes what that of `transformers` computes: from the same folder, over the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.parity import test_parity_deepseek_v32, test_parity_glm4_moe
from equivalence.parity.parity import SEEDS, assert_close, clear_choices, shake, some_ids
from zllm_ref.runtime.draft.mtp import DraftingModel, MtpDrafter
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step
from zllm_ref.runtime.weights import CheckpointError, open_checkpoint

NUM_ROWS = 60


def checkpoint_names(name: str, tensor: Tensor, layer: int) -> dict[str, Tensor]:
    """A parameter of their MTP model under the names that published checkpoints use."""
    name = name.removeprefix("layers.0.").removeprefix("mtp_block.").replace("post_norm.", "shared_head.norm.")
    prefix = f"model.layers.{layer}.{name}"
    if name.endswith("experts.gate_up_proj"):
        base, found = prefix.removesuffix("gate_up_proj"), {}
        for number, (gate, up) in enumerate(half.chunk(2) for half in tensor):
            found |= {f"{base}{number}.gate_proj.weight": gate, f"{base}{number}.up_proj.weight": up}
        return found
    if name.endswith("experts.down_proj"):
        base = prefix.removesuffix("down_proj")
        return {f"{base}{number}.down_proj.weight": down for number, down in enumerate(tensor)}
    return {prefix: tensor}


def config_of(family: str) -> Any:
    from transformers import DeepseekV32Config, Glm4MoeConfig

    if family == "glm4_moe":
        return Glm4MoeConfig(**test_parity_glm4_moe.CONFIG, num_nextn_predict_layers=1)
    # `transformers` runs this layer of GLM's alone; told of DeepSeek's, it builds the same block as the model's own.
    config = DeepseekV32Config(**test_parity_deepseek_v32.CONFIG, num_nextn_predict_layers=1)
    config.num_mtp_layers, config.mtp_layer_types, config.mtp_mlp_layer_types = 1, ["indexed_attention"], ["sparse"]
    return config


def both_models(folder: Path, family: str = "glm4_moe") -> tuple[Any, Any, DraftingModel]:
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM
    from transformers.modeling_layers import MtpModel

    config = config_of(family)
    torch.manual_seed(SEEDS[family])
    theirs = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    further = MtpModel(theirs, 1).eval()
    own: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, tensor in [*theirs.named_parameters(), *theirs.named_buffers()]:
            shake(name, tensor, config)
        for name, tensor in [*further.layers.named_parameters(), *further.layers.named_buffers()]:
            shake(name, tensor, config)
            own |= checkpoint_names(f"layers.{name}", tensor, config.num_hidden_layers)
    theirs.save_pretrained(folder)
    save_file({name: tensor.clone().contiguous() for name, tensor in own.items()}, folder / "further.safetensors")
    model = build_model(open_checkpoint(folder, torch.float32), Numerics(torch.float32), drafting=True)
    return theirs, further, model  # type: ignore[return-value]


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v32"])
@torch.inference_mode()
def test_the_further_layer_equals_transformers(tmp_path: Path, family: str) -> None:
    theirs, further, ours = both_models(tmp_path, family)
    ids = some_ids(ours.vocab_size, NUM_ROWS + 1)

    output = theirs(torch.tensor([ids[:NUM_ROWS]]), output_hidden_states=True)
    positions = torch.arange(1, NUM_ROWS + 1)[None]
    embedded = further.embed_tokens(torch.tensor([ids[1:]]))
    rows = further.layers[0](
        embedded,
        output.hidden_states[-1],
        position_embeddings=further.rotary_emb(embedded, position_ids=positions),
        attention_mask=torch.full((NUM_ROWS, NUM_ROWS), torch.finfo(torch.float32).min).triu(1)[None, None],
        position_ids=positions,
        cache=None,
    )
    expected = theirs.lm_head(rows)[0]

    state = SessionState(ours.state, NUM_ROWS + 8, ours.device)
    step = build_step([(state, ids[:NUM_ROWS])], ours.numerics, ours.device)
    with clear_choices():
        hidden = ours.forward(step)
        commit_step(step)
        drafter = MtpDrafter(ours, state, ours.vocab_size)
        drafted = drafter._run(0, hidden[:NUM_ROWS], ids[1:])

    assert_close(ours.draft_logits(0, drafted), expected)


@torch.inference_mode()
def test_a_guess_in_pieces_is_the_guess_of_the_whole(tmp_path: Path) -> None:
    _, _, ours = both_models(tmp_path)
    ids = some_ids(ours.vocab_size, NUM_ROWS + 1)
    state = SessionState(ours.state, NUM_ROWS + 8, ours.device)
    step = build_step([(state, ids[:NUM_ROWS])], ours.numerics, ours.device)
    hidden = ours.forward(step)[:NUM_ROWS]
    commit_step(step)
    whole, pieces = (MtpDrafter(ours, state.fork(), ours.vocab_size) for _ in range(2))

    whole.follow(0, hidden, ids[1:])
    for start, end in [(0, 17), (17, 18), (18, NUM_ROWS)]:
        pieces.follow(start, hidden[start:end], ids[start + 1 : end + 1])
        pieces.propose(3)  # a guess in between leaves nothing behind that counts

    assert pieces.propose(3) == whole.propose(3)
    assert len(whole.propose(3)) == 3


def test_a_part_of_the_further_layer_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    both_models(tmp_path)
    found = load_file(tmp_path / "further.safetensors")
    found.pop("model.layers.3.hnorm.weight")
    save_file(found, tmp_path / "further.safetensors")

    with pytest.raises(CheckpointError, match=r"no tensor 'model.layers.3.hnorm.weight'"):
        open_checkpoint(tmp_path, torch.float32)
