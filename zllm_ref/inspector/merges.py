"""Byte-pair merges of a text, one after another, as the tokenizer's own table orders them.

l o w e r      symbols: one a byte
lo w e r       merge "l"+"o", rank 12: the smallest rank of all neighbours goes first, the leftmost of equal ones
low er         …
lower          no neighbours left that the table knows
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from zllm_ref.inspector.problem import invalid
from zllm_ref.tokenizer.bpe_encoder import BpeEncoder
from zllm_ref.tokenizer.byte_alphabet import bytes_of
from zllm_ref.tokenizer.vocabulary import Vocabulary

MOST_BYTES = 2_000


def merges(vocabulary: Vocabulary, text: str) -> list[dict[str, Any]]:
    """Word for word. Raises InspectProblem for a text that is too long or no text."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise invalid("text: got half of a surrogate pair, allowed whole characters") from None
    if size > MOST_BYTES:
        raise invalid(f"text: got {size} bytes, allowed {MOST_BYTES}")
    encoder = vocabulary.encoder
    if not isinstance(encoder, BpeEncoder):
        ids = vocabulary.encode_text(text)
        data = text.encode()
        whole = {"text": text, "start": 0, "symbols": [f"{byte:02x}" for byte in data], "merges": [], "ids": ids}
        return [whole] if text else []
    words, start = [], 0
    for word in encoder.words(text):
        words.append(_word(encoder, encoder.merge_ranks, word, start))
        start += len(word)
    return words


def _word(encoder: BpeEncoder, ranks: Mapping[tuple[str, str], int], word: str, start: int) -> dict[str, Any]:
    symbols = list(word)
    steps = []
    while len(symbols) > 1:
        pairs = [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not pairs:
            break
        rank, at = min(pairs)
        steps.append({"rank": rank, "left": _hex(symbols[at]), "right": _hex(symbols[at + 1]), "at": at})
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    if encoder.takes_whole_words and encoder.id_of(word) is not None:
        symbols = [word]
    data = bytes_of(word) or b""
    return {
        "text": data.decode("utf-8", "replace"),
        "start": start,
        "symbols": [_hex(character) for character in word],
        "merges": steps,
        "ids": [encoder.id_of(symbol) for symbol in symbols],
    }


def _hex(piece: str) -> str:
    return (bytes_of(piece) or b"").hex()
