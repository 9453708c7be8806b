"""Real vocabularies out of files, for the fence's figures and its long runs: GGUF, `tokenizer.json`, `tekken.json`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from zllm_ref.tokenizer import Vocabulary, vocabulary_from_gguf, vocabulary_from_tokenizer_json
from zllm_ref.tokenizer.bpe_encoder import BpeEncoder
from zllm_ref.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from zllm_ref.tokenizer.byte_vocabulary import CHATML_MARKERS, DIALECT_MARKERS


def read(path: Path) -> Vocabulary:
    if path.suffix == ".gguf":
        return vocabulary_from_gguf(path)
    definition = json.loads(path.read_text("utf-8")) if path.name.startswith("tekken") else None
    return vocabulary_from_tokenizer_json(path) if definition is None else read_tekken(definition)


def read_tekken(definition: dict[str, Any]) -> Vocabulary:
    """All ranks of a `tekken.json` as byte-level BPE."""
    pieces = [base64.b64decode(entry["token_bytes"]) for entry in definition["vocab"]]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        merges += [
            (max(ranks[left], ranks[right]), ranks[piece], left, right)
            for left, right in splits
            if left in ranks and right in ranks and max(ranks[left], ranks[right]) < ranks[piece]
        ]
    merges.sort(key=lambda merge: (merge[1], merge[0]))
    words = {text_of(piece): rank for piece, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[(text_of(left), text_of(right)) for _, _, left, right in merges]))
    split = pre_tokenizers.Split(Regex(definition["config"]["pattern"]), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return Vocabulary(pieces, {}, BpeEncoder(tokenizer, "tekken"))


def text_of(piece: bytes) -> str:
    return "".join(BYTE_TO_CHARACTER[byte] for byte in piece)


def with_markers(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary with every marker that a dialect may need, as a model trained for it would have."""
    pieces = [vocabulary.token_bytes(token_id) for token_id in range(vocabulary.size)]
    markers = dict(vocabulary.markers)
    for text in (*CHATML_MARKERS, *DIALECT_MARKERS):
        if text not in markers:
            markers[text] = len(pieces)
            pieces.append(text.encode())
    return Vocabulary(pieces, markers, vocabulary._encoder, declared_stop_ids=vocabulary.stop_ids)
