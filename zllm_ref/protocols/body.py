"""From the bytes of a request body to a JSON object: the one place that decides what is JSON."""

from __future__ import annotations

import re

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, JsonTextError, dump_json, kind_of, parse_json

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_body(body: bytes) -> JsonObject:
    """The body as an object. Invalid UTF-8, malformed or too deep JSON, NaN and lone surrogates raise ApiError(INVALID_JSON)."""
    try:
        text = body.decode("utf-8-sig" if body.startswith(b"\xef\xbb\xbf") else "utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(ErrorKind.INVALID_JSON, f"body: got invalid UTF-8 at byte {error.start}, allowed UTF-8 text") from None
    try:
        value = parse_json(text)
    except JsonTextError as error:
        raise ApiError(ErrorKind.INVALID_JSON, f"body: {error}") from None
    if _ESCAPED_SURROGATE.search(text):
        try:
            dump_json(value).encode()
        except UnicodeEncodeError:
            message = "body: got half of a surrogate pair in a string, allowed whole characters"
            raise ApiError(ErrorKind.INVALID_JSON, message) from None
    if not isinstance(value, JsonObject):
        raise ApiError(ErrorKind.INVALID_JSON, f"body: got {kind_of(value)}, allowed an object")
    return value
