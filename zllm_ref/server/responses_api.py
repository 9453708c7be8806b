"""The paths under /v1/responses: create, look up, delete, cancel, take up again, count, compact."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import parse_json
from zllm_ref.protocols import openai_responses
from zllm_ref.protocols.openai_responses import compaction, stored, truncation
from zllm_ref.protocols.openai_responses.request import ResponsesRequest
from zllm_ref.protocols.openai_responses.response import TERMINAL, response_text
from zllm_ref.protocols.sse import Frame, dump
from zllm_ref.server.auth import Caller
from zllm_ref.server.background import BackgroundRun
from zllm_ref.server.exchange import Exchange
from zllm_ref.server.history import load_history, stored_response
from zllm_ref.server.response_store import StoredResponse
from zllm_ref.server.state import ServerState
from zllm_ref.server.turn import Turn, last_of
from zllm_ref.server.wire import OUR_FAULT, RESPONSES

_logger = logging.getLogger(__name__)
_PAGE, _MAX_PAGE = 20, 100


async def create(exchange: Exchange) -> None:
    caller = exchange.authenticate()
    call = await _parsed(exchange, caller)
    call, stream = compaction.stream_of(await fitted(exchange.state, call))
    if call.background:
        if exchange.record is not None:
            exchange.record.transport = "background"
        run = BackgroundRun(exchange.state, call, caller, stream)
        exchange.state.background[call.id] = run
        try:
            body = await run.start()
        except BaseException:
            del exchange.state.background[call.id]
            raise
        await (exchange.replay(run.follow(0)) if call.stream else exchange.respond(body))
        return

    async def keep(turn: Turn, frames: list[Frame]) -> list[Frame]:
        try:
            await keep_response(exchange.state, call, caller, turn, frames)
        except Exception:
            if not turn.is_committed:
                raise
            # T7: the stream has begun, so it says itself that it failed, in place of the end that could not be kept
            _logger.exception("response %s could not be kept", call.id)
            sent = [frame for frame in frames if frame.event not in TERMINAL and not frame.is_done]
            return [*sent, *turn.fail(ApiError(ErrorKind.INTERNAL, OUR_FAULT))]
        return frames

    await exchange.answer(RESPONSES, call, stream, keep)


async def keep_response(state: ServerState, call: ResponsesRequest, caller: Caller, turn: Turn, frames: Sequence[Frame]) -> None:
    """Before the client hears of the end: whoever has an id can use it at once."""
    terminal = last_of(frames, tuple(TERMINAL))
    if not call.store or terminal is None:
        return
    cache_id = turn.started.cache_id if turn.started is not None else None
    row = stored_response(call, caller, TERMINAL[terminal.event or ""], response_text(terminal), cache_id)
    await state.in_thread(lambda: state.store.put(row))


async def fitted(state: ServerState, call: ResponsesRequest) -> ResponsesRequest:
    """`truncation: auto`: as few of the oldest rounds left out as it takes to fit, found by bisection."""
    if not call.truncate:
        return call
    limit = next(card.context_length for card in state.engine.models if card.id == call.request.model)

    def fits(count: int) -> bool:
        try:
            return state.engine.count_tokens(truncation.without_oldest(call.request, count)) < limit
        except ApiError as error:
            if error.kind is ErrorKind.CONTEXT_OVERFLOW:
                return False
            raise

    def search() -> int:
        low, high = 0, truncation.num_rounds(call.request) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle + 1, high)
        return low

    if truncation.num_rounds(call.request) < 2:
        return call
    count = await state.in_thread(search)
    return replace(call, request=truncation.without_oldest(call.request, count)) if count else call


async def retrieve(exchange: Exchange) -> None:
    row = await _row(exchange)
    query = exchange.query()
    if query.get("stream") != "true":
        await exchange.respond(row.body)
        return
    after = query.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal() or len(after) > 12:
        raise ApiError(ErrorKind.INVALID_VALUE, f"'starting_after': got '{after[:50]}', allowed a number", param="starting_after")
    if not row.is_background:
        raise ApiError(ErrorKind.INVALID_VALUE, "'stream': got true, allowed only for background responses", param="stream")
    first = max(0, int(after) + 1)
    run = exchange.state.background.get(row.id)
    await exchange.replay(_stored_frames(exchange, row.id, first) if run is None else run.follow(first))


async def delete(exchange: Exchange) -> None:
    row = await _row(exchange)
    run = exchange.state.background.get(row.id)
    if run is not None:
        run.cancel()
        await run.ended()
    await exchange.in_thread(lambda: exchange.state.store.delete(row.id, row.owner))
    await exchange.respond(dump({"id": row.id, "object": "response.deleted", "deleted": True}))


async def cancel(exchange: Exchange) -> None:
    """Only what runs in the background can be cancelled by id; closing the connection cancels everything else."""
    row = await _row(exchange)
    if not row.is_background:
        message = "'response_id': got a response that is not in the background, allowed one created with background: true"
        raise ApiError(ErrorKind.INVALID_VALUE, message, param="response_id")
    run = exchange.state.background.get(row.id)
    if run is not None:
        run.cancel()
        await run.ended()
        row = await _row(exchange)
    await exchange.respond(row.body)


async def input_items(exchange: Exchange) -> None:
    row = await _row(exchange)
    query = exchange.query()
    limit, order = query.get("limit", str(_PAGE)), query.get("order", "desc")
    if not limit.isdecimal() or len(limit) > 12 or not 1 <= int(limit) <= _MAX_PAGE:
        raise ApiError(ErrorKind.INVALID_VALUE, f"'limit': got '{limit[:50]}', allowed 1 to {_MAX_PAGE}", param="limit")
    if order not in ("asc", "desc"):
        raise ApiError(ErrorKind.INVALID_VALUE, f"'order': got '{order[:50]}', allowed asc, desc", param="order")
    items = parse_json(row.input)
    assert isinstance(items, tuple)
    page = stored.render_item_list(items, after=query.get("after"), limit=int(limit), descending=order == "desc")
    await exchange.respond(page)


async def input_tokens(exchange: Exchange) -> None:
    """X6: the same parsing, rendering and encoding as a request that generates."""
    call = await _parsed(exchange, exchange.authenticate())
    count = await exchange.in_thread(lambda: exchange.state.engine.count_tokens(call.request))
    await exchange.respond(dump({"object": "response.input_tokens", "input_tokens": count}))


async def compact(exchange: Exchange) -> None:
    call = await _parsed(exchange, exchange.authenticate())
    asked = compaction.summary_request(call)
    accumulator = openai_responses.Accumulator()
    async with Turn(exchange.state, RESPONSES, asked, openai_responses.Stream(asked)) as turn, exchange.watched(turn.abandon):
        while not turn.is_ended:
            for frame in await turn.next():
                accumulator.on(frame)
            if turn.is_abandoned:
                return
        if turn.error is not None:
            raise turn.error
    await exchange.respond(compaction.render_compaction(call, json.loads(accumulator.result())))


async def _parsed(exchange: Exchange, caller: Caller) -> ResponsesRequest:
    body = await exchange.body()
    context = exchange.context(caller)
    history = await load_history(exchange.state, caller, body)
    return await exchange.translated(lambda: openai_responses.parse_request(body, context, history))


async def _row(exchange: Exchange) -> StoredResponse:
    owner, identity = exchange.authenticate().owner, exchange.path_parameter("response_id")
    row = await exchange.in_thread(lambda: exchange.state.store.get(identity, owner))
    if row is None:
        raise ApiError(ErrorKind.NOT_FOUND, f"Response with id '{identity[:200]}' not found.", param="response_id")
    return row


async def _stored_frames(exchange: Exchange, identity: str, first: int) -> AsyncIterator[list[Frame]]:
    rows = await exchange.in_thread(lambda: exchange.state.store.frames(identity))
    yield [Frame(row.data, row.name) for row in rows if row.number >= first]
