"""Text that goes out to a client and comes back: signed, so that it is known for our own, or sealed, so that only we can read it.

    signature  "s1." base64url(tag)                     the text travels beside it
    sealed     "e1." base64url(tag ‖ ciphertext)        the text travels inside it (reasoning under store:false, RS19)

The tag is a keyed BLAKE2b of the text and doubles as the nonce of the key stream: the same text gives the same seal, so
nothing here needs a clock or a random number, and a changed byte anywhere fails the check.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import blake2b

_TAG_BYTES = 32
_BLOCK_BYTES = 64
_SIGNED, _SEALED = "s1.", "e1."


class Seal:
    """`key`: 32 secret bytes. A seal made with another key does not open."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"key: got {len(key)} bytes, allowed 32")
        self._key = key

    def sign(self, text: str) -> str:
        return _SIGNED + _encode(self._tag(text.encode()))

    def verify(self, text: str, signature: str) -> bool:
        return hmac.compare_digest(self.sign(text).encode(), signature.encode())

    def seal(self, text: str) -> str:
        plain = text.encode()
        tag = self._tag(plain)
        return _SEALED + _encode(tag + self._mask(tag, plain))

    def open(self, sealed: str) -> str | None:
        """The text, or None: not one of ours, another key, or changed on the way."""
        if not sealed.startswith(_SEALED):
            return None
        try:
            raw = base64.b64decode(sealed[len(_SEALED) :].encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            return None
        tag, cipher = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        plain = self._mask(tag, cipher)
        if len(tag) != _TAG_BYTES or not hmac.compare_digest(self._tag(plain), tag):
            return None
        return plain.decode()

    def _tag(self, plain: bytes) -> bytes:
        return blake2b(plain, key=self._key, digest_size=_TAG_BYTES, person=b"zllm tag").digest()

    def _mask(self, nonce: bytes, text: bytes) -> bytes:
        blocks = range((len(text) + _BLOCK_BYTES - 1) // _BLOCK_BYTES)
        stream = b"".join(
            blake2b(nonce + index.to_bytes(8, "big"), key=self._key, digest_size=_BLOCK_BYTES, person=b"zllm mask").digest()
            for index in blocks
        )
        masked = int.from_bytes(text, "big") ^ int.from_bytes(stream[: len(text)], "big")
        return masked.to_bytes(len(text), "big")


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii")
