"""What each path does, in a few lines each."""

from __future__ import annotations

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.request import Request
from zllm_ref.protocols import anthropic_messages, openai_chat
from zllm_ref.protocols.sse import dump
from zllm_ref.server.exchange import Exchange
from zllm_ref.server.wire import CHAT, MESSAGES


async def chat_completions(exchange: Exchange) -> None:
    caller = exchange.authenticate()
    body, context = await exchange.body(), exchange.context(caller)
    call = await exchange.translated(lambda: openai_chat.parse_request(body, context))
    include_usage = None if call.stream else True
    await exchange.answer(CHAT, call, openai_chat.Stream(call, include_usage=include_usage))


async def messages(exchange: Exchange) -> None:
    caller = exchange.authenticate()
    body, context = await exchange.body(), exchange.context(caller)
    call = await exchange.translated(lambda: anthropic_messages.parse_request(body, context))
    await exchange.answer(MESSAGES, call, anthropic_messages.Stream(call))


async def count_tokens(exchange: Exchange) -> None:
    """X6: the same parsing, rendering and encoding as a request that generates."""
    caller = exchange.authenticate()
    body, context = await exchange.body(), exchange.context(caller)
    call = await exchange.translated(lambda: anthropic_messages.parse_count_request(body, context))
    await exchange.respond(dump({"input_tokens": await _count(exchange, call.request)}))


async def upgrade_required(exchange: Exchange) -> None:
    """WS1: Codex takes a 426 as the sign to go on over HTTP."""
    raise ApiError(ErrorKind.UPGRADE_REQUIRED, "GET /v1/responses is a WebSocket: got no upgrade. POST works without one.")


async def _count(exchange: Exchange, request: Request) -> int:
    return await exchange.in_thread(lambda: exchange.state.engine.count_tokens(request))
