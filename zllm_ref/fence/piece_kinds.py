"""What the pieces of a vocabulary are made of, one byte of flags per id: all that the guard knows of text."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag


class PieceKind(IntFlag):
    WORDS = 1
    """Letters as words have them: two or more with a small one among them, or anything beyond ASCII."""
    BLANK = 2
    LINE = 4
    """Holds a line break."""
    CODE = 8
    """Holds the ruler of a code block."""
    CUT = 16
    """Begins or ends inside a character."""
    FOREIGN = 32
    """Beyond ASCII: written without blanks in many scripts."""
    DIGITS = 64
    """Nothing but digits: part of a number wherever it comes."""


def piece_kinds(pieces: Sequence[bytes]) -> bytes:
    """The flags of every id."""
    return bytes(_kind(piece) for piece in pieces)


def _kind(piece: bytes) -> int:
    kind = 0
    if piece.isascii():
        letters = sum(65 <= byte <= 90 or 97 <= byte <= 122 for byte in piece)
        if letters >= 2 and any(97 <= byte <= 122 for byte in piece):
            kind |= PieceKind.WORDS
    else:
        kind |= PieceKind.WORDS | PieceKind.FOREIGN
        try:
            piece.decode("utf-8")
        except UnicodeDecodeError:
            kind |= PieceKind.CUT
    if b"\n" in piece:
        kind |= PieceKind.LINE | PieceKind.BLANK
    elif b" " in piece or b"\t" in piece:
        kind |= PieceKind.BLANK
    if piece.isdigit():
        kind |= PieceKind.DIGITS
    if b"```" in piece:
        kind |= PieceKind.CODE
    return int(kind)
