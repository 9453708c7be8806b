"""What a stored response contributes to a later request, and how its input is listed. Sans-IO: texts in, texts out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, JsonValue, dump_json, parse_json, parse_json_object
from zllm_ref.protocols.sse import on_one_line

_OWN_ITEM = re.compile(r"[a-z]+_([0-9a-f]{24})[0-9a-f]{4}\Z")


def items_of(input_text: str, body_text: str) -> tuple[JsonValue, ...]:
    """RS20: the input and the output of a response, in order. Its `instructions` are not carried over."""
    given = parse_json(input_text)
    output = parse_json_object(body_text).get("output")
    return (*_array(given), *_array(output))


def response_id_of_item(item_id: str) -> str | None:
    """An item that this server made names the response that it belongs to; None for a foreign id."""
    match = _OWN_ITEM.match(item_id)
    return f"resp_{match.group(1)}" if match else None


def referenced_items(items: Sequence[JsonValue]) -> tuple[str, ...]:
    """The ids that `item_reference` items of an input name."""
    return tuple(
        identity
        for item in items
        if isinstance(item, JsonObject) and kind_of(item) == "item_reference" and isinstance(identity := item.get("id"), str)
    )


def kind_of(item: JsonObject) -> str:
    """The type, which may be left out of a message, and of a reference: an id and no role."""
    kind = item.get("type")
    if isinstance(kind, str) and kind:
        return kind
    return "message" if item.get("role") is not None or item.get("id") is None else "item_reference"


def find_item(items: Sequence[JsonValue], identity: str) -> JsonObject | None:
    """The item of that id; never a reference to it."""
    objects = (item for item in items if isinstance(item, JsonObject))
    return next((item for item in objects if item.get("id") == identity and kind_of(item) != "item_reference"), None)


def with_ids(items: Sequence[JsonValue], request_id: str) -> tuple[JsonValue, ...]:
    """Input items as they are kept: each with a type and an id, text content as a list of parts."""
    return tuple(_kept(item, f"in_{request_id}{index:04x}") for index, item in enumerate(items))


def render_items(items: Sequence[JsonValue]) -> str:
    return on_one_line(dump_json(tuple(items), separators=(",", ":")))


def render_item_list(items: Sequence[JsonValue], *, after: str | None, limit: int, descending: bool) -> str:
    """A page of input items. Raises ApiError where `after` is not among them."""
    ordered = list(reversed(items)) if descending else list(items)
    ids = [identity if isinstance(item, JsonObject) and isinstance(identity := item.get("id"), str) else "" for item in ordered]
    start = 0
    if after is not None:
        if after not in ids:
            raise ApiError(ErrorKind.INVALID_VALUE, f"'after': got '{after[:100]}', allowed the id of an item", param="after")
        start = ids.index(after) + 1
    page, page_ids = ordered[start : start + limit], ids[start : start + limit]
    pairs: tuple[tuple[str, JsonValue], ...] = (
        ("object", "list"),
        ("data", tuple(page)),
        ("first_id", page_ids[0] if page_ids else None),
        ("last_id", page_ids[-1] if page_ids else None),
        ("has_more", start + limit < len(ordered)),
    )
    return on_one_line(dump_json(JsonObject(pairs), separators=(",", ":")))


def _kept(item: JsonValue, identity: str) -> JsonValue:
    if not isinstance(item, JsonObject):
        return item
    pairs = dict(item.pairs)
    kind = pairs["type"] = kind_of(item)
    if not isinstance(pairs.get("id"), str):
        pairs["id"] = identity
    content = pairs.get("content")
    if kind == "message" and isinstance(content, str):
        part = "output_text" if pairs.get("role") == "assistant" else "input_text"
        shape: tuple[tuple[str, JsonValue], ...] = (("type", part), ("text", content))
        pairs["content"] = (JsonObject((*shape, ("annotations", ())) if part == "output_text" else shape),)
    return JsonObject(tuple(pairs.items()))


def _array(value: JsonValue) -> tuple[JsonValue, ...]:
    assert isinstance(value, tuple), "stored items are an array"
    return value
