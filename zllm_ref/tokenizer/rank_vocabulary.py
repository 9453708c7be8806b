"""A vocabulary from a table of ranks (`tiktoken` files): every piece of bytes with its rank, which is its id too.

Such a table names no merges: two neighbours merge if their joint bytes are a piece, the smallest rank first. So every way to
cut a piece into two other pieces is a merge, in the order of the ranks of what they make.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from zllm_ref.tokenizer.bpe_encoder import BpeEncoder
from zllm_ref.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from zllm_ref.tokenizer.vocabulary import Vocabulary, VocabularyError

_HEAD, _LENGTH, _RANK = struct.Struct("<I"), struct.Struct("<H"), struct.Struct("<I")


def read_tiktoken_ranks(path: Path) -> dict[bytes, int]:
    """A text file with a line of base64 and a rank for each piece."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        piece, space, rank = line.partition(b" ")
        if not (space and rank.strip().isdigit()):
            raise VocabularyError(f"{path}, line {number}: got {line[:40]!r}, allowed base64 and a rank")
        try:
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
        except binascii.Error as error:
            raise VocabularyError(f"{path}, line {number}: {error}") from None
    return ranks


def read_packed_ranks(path: Path) -> dict[bytes, int]:
    """A binary file, little-endian: the number of pieces (4 bytes), then for each its length (2), its bytes and its rank (4)."""
    data = path.read_bytes()
    ranks: dict[bytes, int] = {}
    place = _HEAD.size
    try:
        (count,) = _HEAD.unpack_from(data)
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, place)
            place += _LENGTH.size
            piece = data[place : place + length]
            place += length
            (ranks[piece],) = _RANK.unpack_from(data, place)
            place += _RANK.size
    except struct.error as error:
        raise VocabularyError(f"{path} at byte {place}: got the end of the file ({error}), allowed {count} pieces") from None
    if place != len(data) or len(ranks) != count:
        raise VocabularyError(f"{path}: got {len(data)} bytes and {len(ranks)} pieces, allowed {place} and {count}")
    return ranks


def vocabulary_from_ranks(
    ranks: Mapping[bytes, int], markers: Mapping[str, int], pattern: str, *, composes: bool = False, name: str = ""
) -> Vocabulary:
    """`pattern` cuts a text into words before pieces are sought; `composes`: characters are composed (NFC) first."""
    spelled = {piece: "".join(map(BYTE_TO_CHARACTER.__getitem__, piece)) for piece in ranks}
    merges: list[tuple[int, int, int, str, str]] = []
    for piece, rank in ranks.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ranks and right in ranks:
                merges.append((rank, ranks[left], ranks[right], spelled[left], spelled[right]))
    merges.sort()
    pairs = [(left, right) for _, _, _, left, right in merges]
    vocab = {spelled[piece]: rank for piece, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=True))
    if composes:
        tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(pattern), "isolated")
    bytes_last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_last])
    pieces = [b""] * (max((*ranks.values(), *markers.values())) + 1)
    for piece, rank in ranks.items():
        pieces[rank] = piece
    for text, token_id in markers.items():
        pieces[token_id] = text.encode()
    digest = hashlib.sha256(pattern.encode() + b"".join(pieces)).hexdigest()
    return Vocabulary(pieces, markers, BpeEncoder(tokenizer, f"ranks:{name}:{digest}"))
