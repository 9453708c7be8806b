"""What earlier responses contribute to a request: looked up here, understood by the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, JsonValue
from zllm_ref.protocols.openai_responses import stored
from zllm_ref.protocols.openai_responses.request import History, ResponsesRequest, input_items_of, previous_response_not_found
from zllm_ref.server.auth import Caller
from zllm_ref.server.response_store import StoredResponse
from zllm_ref.server.state import ServerState

_CONTINUABLE = ("completed", "incomplete")


@dataclass(frozen=True, slots=True)
class LocalResponse:
    """A response that one WebSocket connection remembers, stored or not (WS8): its whole conversation, output included."""

    id: str
    items: tuple[JsonValue, ...]
    cache_id: str | None


async def load_history(
    state: ServerState, caller: Caller, body: JsonObject, local: Mapping[str, LocalResponse] | None = None
) -> History:
    """Raises ApiError(previous_response_not_found). Rebuilds the full input; the engine finds out what is still cached."""
    items = input_items_of(body)
    previous = body.get("previous_response_id")
    past: tuple[JsonValue, ...] = ()
    cache_id: str | None = None
    if isinstance(previous, str):
        known = (local or {}).get(previous)
        if known is not None:
            past, cache_id = known.items, known.cache_id
        else:
            chain = await state.in_thread(lambda: state.store.chain(previous, caller.owner))
            past, cache_id = _joined(chain, previous)
    known_items: dict[str, JsonObject] = {}
    for identity in stored.referenced_items((*past, *items)):
        found = stored.find_item(past, identity) or await _stored_item(state, caller, identity)
        if found is not None:
            known_items[identity] = found
    return History(past, known_items, cache_id)


def _joined(chain: list[StoredResponse] | None, previous: str) -> tuple[tuple[JsonValue, ...], str | None]:
    if chain is None:
        raise previous_response_not_found(previous)
    last = chain[-1]
    if last.status not in _CONTINUABLE:
        message = f"'previous_response_id': got a response with status {last.status}, allowed {' or '.join(_CONTINUABLE)}"
        raise ApiError(ErrorKind.INVALID_VALUE, message, param="previous_response_id")
    items: list[JsonValue] = []
    for response in chain:
        items.extend(stored.items_of(response.input, response.body))
    return tuple(items), last.cache_id


async def _stored_item(state: ServerState, caller: Caller, identity: str) -> JsonObject | None:
    response_id = stored.response_id_of_item(identity)
    if response_id is None:
        return None
    response = await state.in_thread(lambda: state.store.get(response_id, caller.owner))
    return None if response is None else stored.find_item(stored.items_of(response.input, response.body), identity)


def stored_response(call: ResponsesRequest, caller: Caller, status: str, body: str, cache_id: str | None) -> StoredResponse:
    items = stored.with_ids(call.input_items, call.request.request_id)
    return StoredResponse(
        id=call.id,
        owner=caller.owner,
        previous_id=call.previous_response_id,
        status=status,
        is_background=call.background,
        body=body,
        input=stored.render_items(items),
        cache_id=cache_id,
    )
