"""What all endpoints of one server share. Made once; mutated only from the event loop."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.config import ServerSettings
from zllm_ref.inspector import Recorder
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.protocols.seal import Seal
from zllm_ref.server.engine_port import Engine
from zllm_ref.server.metrics import Metrics
from zllm_ref.server.response_store import ResponseStore

if TYPE_CHECKING:
    from zllm_ref.server.background import BackgroundRun
    from zllm_ref.server.turn import Turn

_WORKERS = 8
_RETRY_SECONDS = 1.0
_POLL_SECONDS = 0.02
_LAST_WORDS_SECONDS = 5.0  # on a busy machine, too: an answer that ends keeps its response first
T = TypeVar("T")


@dataclass(slots=True)
class ServerState:
    """`workers` run what blocks: rendering and encoding of prompts."""

    engine: Engine
    settings: ServerSettings
    seal: Seal
    store: ResponseStore
    metrics: Metrics = field(default_factory=Metrics)
    workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_WORKERS, thread_name_prefix="zllm-server"))
    background: dict[str, BackgroundRun] = field(default_factory=dict)
    turns: set[Turn] = field(default_factory=set)
    is_closing: bool = False
    recorder: Recorder | None = None
    """None: nobody looks on, and nothing is recorded."""

    def context(self, request_id: str, namespace: str, originator: str = "") -> RequestContext:
        """Raises ApiError(OVERLOADED) while the model is still loading."""
        models = self.engine.models
        if not models:
            status = self.engine.health().get("status")
            message = f"The model is not ready: {status}."
            raise ApiError(ErrorKind.OVERLOADED, message, retry_after_seconds=_RETRY_SECONDS)
        profile = Profile(self.settings.profile)
        if profile is Profile.OPENAI and originator.startswith("codex"):
            profile = Profile.CODEX
        return RequestContext(
            request_id=request_id,
            clock=unix_seconds,
            models=models,
            seal=self.seal,
            profile=profile,
            namespace=namespace,
            strip_billing_line=self.settings.strip_billing_line,
        )

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs what blocks outside the loop, so that no other stream waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, work)

    @property
    def num_running(self) -> int:
        return len(self.turns)

    def admit(self, turn: Turn) -> None:
        """One more answer at once, or ApiError: too many of them, or the server is going down."""
        if self.is_closing:
            raise ApiError(ErrorKind.OVERLOADED, "The server is shutting down.", retry_after_seconds=_RETRY_SECONDS)
        limit = self.settings.max_concurrent_requests
        if self.num_running >= limit:
            message = f"Too many requests at once: got {limit + 1}, allowed {limit}."
            raise ApiError(ErrorKind.BUSY, message, retry_after_seconds=_RETRY_SECONDS)
        self.turns.add(turn)

    def release(self, turn: Turn) -> None:
        self.turns.discard(turn)

    async def end_gracefully(self) -> None:
        """Lets running answers finish for the grace time, then ends each in its protocol's own form. Nothing new is let in."""
        self.is_closing = True
        deadline = time.monotonic() + self.settings.shutdown_grace_seconds
        while self.turns and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        for turn in list(self.turns):
            turn.stop(ApiError(ErrorKind.OVERLOADED, "The server is shutting down.", retry_after_seconds=_RETRY_SECONDS))
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while self.turns and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)


def new_request_id() -> str:
    return secrets.token_hex(12)


def unix_seconds() -> int:
    return int(time.time())
