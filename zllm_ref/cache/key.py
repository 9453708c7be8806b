"""Keys as bytes that mean one thing only: every field carries its tag and its length.

Without lengths ("org_1", "2345") and ("org_12345", "") are the same bytes; without tags a salt "X" is an adapter named "X".
Either mistake hands one caller the state of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

KEY_BYTES = 16
"""Length of a block key. It only finds candidates: tokens are compared afterwards, so a collision costs time, not truth."""


def tagged_fields(fields: Mapping[str, str]) -> str:
    """One string for named fields, different for different fields: `{"salt": "a"}` becomes `4:salt=1:a;`.

    Order does not matter. An absent field and an empty one differ.
    """
    return "".join(f"{len(name)}:{name}={len(value)}:{value};" for name, value in sorted(fields.items()))


def root_key(identity: str, namespace: str) -> bytes:
    """The key from which all block keys of one identity and namespace descend."""
    fields = tagged_fields({"identity": identity, "namespace": namespace})
    return blake2b(fields.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def block_key(parent_key: bytes, id_bytes: bytes) -> bytes:
    """The key of a block: its parent's key (hence identity, namespace and all tokens before) and its own ids.

    `id_bytes` are little-endian int32, so their length says how many tokens the block has: a partial block and the full one
    that starts with it have different keys.
    """
    return blake2b(parent_key + id_bytes, digest_size=KEY_BYTES).digest()
