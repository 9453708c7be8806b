"""Byte-level BPE over the `tokenizers` library, built so that it cannot know a marker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from zllm_ref.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from zllm_ref.tokenizer.vocabulary import VocabularyError

_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
_DEEPSEEK3_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

PRE_TOKENIZERS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2_SPLIT,),
    "smollm": (r"\p{N}", _GPT2_SPLIT),
    "llama-bpe": (_LLAMA3_SPLIT,),
    "qwen2": (_QWEN2_SPLIT,),
    "glm4": (_LLAMA3_SPLIT,),
    "chatglm-bpe": (_LLAMA3_SPLIT,),
    "deepseek-v3": (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK3_WORDS),
}
"""GGUF's `tokenizer.ggml.pre` → the expressions that cut a text, one after the other, before BPE."""

NORMALIZED_BY_NFC = frozenset({"qwen2"})
"""Pre-tokenizer names whose original tokenizer composes characters first."""


_SHORT = 500
"""A text of fewer characters is done before another thread could be woken for it."""


class BpeEncoder:
    """Encodes with a `tokenizers.Tokenizer` that holds no added token. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @cached_property
    def keeps_ascii(self) -> bool:
        """ASCII texts come back from their ids unchanged: nothing but NFC goes before the bytes, and no character is lost."""
        if not isinstance(self._tokenizer.normalizer, type(None) | normalizers.NFC):
            return False
        probe = "".join(map(chr, range(9, 127))) + "  \n\n Az  aZ \t"
        pieces = (self._tokenizer.id_to_token(token_id) for token_id in self.encode((probe,))[0])
        return "".join(piece or "" for piece in pieces) == "".join(BYTE_TO_CHARACTER[byte] for byte in probe.encode())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) == 1 and len(texts[0]) < _SHORT:
            return [self._tokenizer.encode(texts[0], add_special_tokens=False).ids]
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def words(self, text: str) -> list[str]:
        """The stretches that are encoded each by itself, in the alphabet of bytes: for whoever shows the merges."""
        normalizer, splitter = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        composed = normalizer.normalize_str(text) if normalizer is not None else text
        return [word for word, _ in splitter.pre_tokenize_str(composed)] if splitter is not None else [composed]

    @cached_property
    def merge_ranks(self) -> Mapping[tuple[str, str], int]:
        """Pair of pieces → place in the table of merges; the smallest goes first."""
        merges = json.loads(self._tokenizer.to_str())["model"]["merges"]
        pairs = (tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in merges)
        return {(left, right): rank for rank, (left, right) in enumerate(pairs)}

    def id_of(self, piece: str) -> int | None:
        found = self._tokenizer.token_to_id(piece)
        return int(found) if found is not None else None

    @property
    def takes_whole_words(self) -> bool:
        """A word that is a piece is that piece, whatever its merges would make of it."""
        return bool(getattr(self._tokenizer.model, "ignore_merges", False))


def bpe_encoder(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], pre_tokenizer: str) -> BpeEncoder:
    """The encoder for the vocabulary, merges and pre-tokenizer name of a GGUF file (markers already left out)."""
    expressions = PRE_TOKENIZERS.get(pre_tokenizer)
    if expressions is None:
        raise VocabularyError(f"tokenizer.ggml.pre: got {pre_tokenizer!r}, allowed {', '.join(sorted(PRE_TOKENIZERS))}")
    tokenizer = Tokenizer(models.BPE(vocab=dict(vocabulary), merges=list(merges)))
    if pre_tokenizer in NORMALIZED_BY_NFC:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    bytes_last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytes_last])
    merges_digest = hashlib.sha256("\n".join(f"{left} {right}" for left, right in merges).encode()).hexdigest()
    return BpeEncoder(tokenizer, f"bpe:{pre_tokenizer}:{merges_digest}")
