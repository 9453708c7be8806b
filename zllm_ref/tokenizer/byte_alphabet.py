"""The printable alphabet in which byte-level BPE files write bytes.

Bytes that print as themselves in Latin-1 keep their character; the other 68 take the code points from U+0100 on, in order.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _alphabet() -> dict[str, int]:
    table = {chr(byte): byte for byte in _PRINTABLE}
    others = (byte for byte in range(256) if byte not in _PRINTABLE)
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


CHARACTER_TO_BYTE = _alphabet()
"""Character of the alphabet → byte, 256 entries."""

BYTE_TO_CHARACTER = {byte: character for character, byte in CHARACTER_TO_BYTE.items()}


def bytes_of(piece: str) -> bytes | None:
    """The bytes that a vocabulary entry stands for; None: a character is not of the alphabet (a marker, then)."""
    try:
        return bytes([CHARACTER_TO_BYTE[character] for character in piece])
    except KeyError:
        return None
