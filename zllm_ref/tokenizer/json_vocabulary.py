"""The vocabulary of a Hugging Face folder: `tokenizer.json`, and what lies beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from zllm_ref.tokenizer.bpe_encoder import BpeEncoder
from zllm_ref.tokenizer.byte_alphabet import bytes_of
from zllm_ref.tokenizer.vocabulary import Vocabulary, VocabularyError


def vocabulary_from_tokenizer_json(path: Path) -> Vocabulary:
    """Reads `tokenizer.json` (or the folder that holds it) with `tokenizer_config.json`, `generation_config.json`,
    `config.json` and `chat_template.jinja` where they lie beside it. Only byte-level BPE."""
    file = path / "tokenizer.json" if path.is_dir() else path
    definition = _read(file)
    model = definition.get("model") or {}
    if model.get("type") != "BPE" or not _uses_bytes(definition):
        raise VocabularyError(f"{file}: got a {model.get('type')} model without byte-level pieces, allowed byte-level BPE")

    markers = {entry["content"]: int(entry["id"]) for entry in definition.get("added_tokens") or []}
    words = {text: token_id for text, token_id in model["vocab"].items() if text not in markers}
    # Left in, the library would recognise a marker's spelling in a user's text (also where `special` is false).
    plain = {**definition, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    plain["model"] = {**model, "vocab": words}
    text = json.dumps(plain, ensure_ascii=False)
    encoder = BpeEncoder(Tokenizer.from_str(text), "json:" + hashlib.sha256(text.encode()).hexdigest())

    config = _read_beside(file, "tokenizer_config.json")
    stop_ids = _declared_stop_ids(file, config, markers)
    bos = _content(config.get("bos_token"))
    return Vocabulary(
        _pieces(words, markers, file),
        markers,
        encoder,
        declared_stop_ids=stop_ids,
        bos_id=markers.get(bos) if bos else None,
        bos_is_added=bool(config.get("add_bos_token", False)),
        chat_template=_chat_template(file, config),
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise VocabularyError(f"{file}: got no such file, allowed a tokenizer.json") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise VocabularyError(f"{file}: got text that is no JSON ({error}), allowed a JSON object") from None
    if not isinstance(value, dict):
        raise VocabularyError(f"{file}: got {type(value).__name__}, allowed a JSON object")
    return value


def _read_beside(file: Path, name: str) -> dict[str, Any]:
    beside = file.with_name(name)
    return _read(beside) if beside.exists() else {}


def _uses_bytes(definition: dict[str, Any]) -> bool:
    """Byte-level BPE names ByteLevel in its pre-tokenizer or decoder."""
    return '"ByteLevel"' in json.dumps([definition.get("pre_tokenizer"), definition.get("decoder")])


def _pieces(words: dict[str, int], markers: dict[str, int], file: Path) -> list[bytes]:
    pieces = [b""] * (max((*words.values(), *markers.values()), default=-1) + 1)
    for text, token_id in words.items():
        piece = bytes_of(text)
        if piece is None:
            raise VocabularyError(f"{file}, id {token_id}: got {text!r}, allowed the byte-level alphabet")
        pieces[token_id] = piece
    for text, token_id in markers.items():
        pieces[token_id] = text.encode()
    return pieces


def _declared_stop_ids(file: Path, config: dict[str, Any], markers: dict[str, int]) -> list[int]:
    stop_ids: list[int] = []
    eos = _content(config.get("eos_token"))
    if eos in markers:
        stop_ids.append(markers[eos])
    for name in ("generation_config.json", "config.json"):
        declared = _read_beside(file, name).get("eos_token_id")
        stop_ids += [declared] if isinstance(declared, int) else list(declared or ())
    return stop_ids


def _content(token: Any) -> str:
    """A token is written as its text or as an object with `content`."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _chat_template(file: Path, config: dict[str, Any]) -> str | None:
    beside = file.with_name("chat_template.jinja")
    if beside.exists():
        return beside.read_text("utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("tool_use") or named.get("default")
    return template if isinstance(template, str) else None
