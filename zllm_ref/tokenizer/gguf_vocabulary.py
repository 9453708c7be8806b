"""The vocabulary inside a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zllm_ref.tokenizer.bpe_encoder import bpe_encoder
from zllm_ref.tokenizer.byte_alphabet import bytes_of
from zllm_ref.tokenizer.gguf_metadata import read_gguf_metadata
from zllm_ref.tokenizer.vocabulary import Vocabulary, VocabularyError

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def vocabulary_from_gguf(path: Path) -> Vocabulary:
    """Reads tokens, merges, token types, pre-tokenizer and chat template of a byte-level BPE (`gpt2`) GGUF file."""
    return vocabulary_from_gguf_metadata(read_gguf_metadata(path))


def vocabulary_from_gguf_metadata(metadata: dict[str, Any]) -> Vocabulary:
    """As `vocabulary_from_gguf`, on metadata that was read before."""
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise VocabularyError(f"tokenizer.ggml.model: got {model!r}, allowed 'gpt2' (byte-level BPE)")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    types: list[int] = metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise VocabularyError(f"tokenizer.ggml.token_type: got {len(types)} entries, allowed {len(tokens)}, one a token")

    markers: dict[str, int] = {}
    words: dict[str, int] = {}
    pieces: list[bytes] = []
    for token_id, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind in (_CONTROL, _USER_DEFINED):
            markers[text] = token_id
            pieces.append(text.encode())
        elif kind == _UNUSED:
            pieces.append(b"")
        else:
            piece = bytes_of(text)
            if piece is None:
                raise VocabularyError(f"tokenizer.ggml.tokens[{token_id}]: got {text!r}, allowed the byte-level alphabet")
            words[text] = token_id
            pieces.append(piece)

    merges = [_merge(text) for text in metadata["tokenizer.ggml.merges"]]
    pre_tokenizer = metadata.get("tokenizer.ggml.pre", "gpt-2")
    stop_ids = [metadata[f"tokenizer.ggml.{key}"] for key in _STOP_KEYS if f"tokenizer.ggml.{key}" in metadata]
    return Vocabulary(
        pieces,
        markers,
        bpe_encoder(words, merges, pre_tokenizer),
        declared_stop_ids=stop_ids,
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        bos_is_added=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def _merge(text: str) -> tuple[str, str]:
    left, space, right = text.partition(" ")
    if not (left and space and right):
        raise VocabularyError(f"tokenizer.ggml.merges: got {text!r}, allowed two pieces with a space between")
    return left, right
