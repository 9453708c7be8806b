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
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.protocols.seal import Seal
from zllm_ref.server.engine_port import Engine
from zllm_ref.server.metrics import Metrics
from zllm_ref.server.response_store import ResponseStore

if TYPE_CHECKING:
    from zllm_ref.server.background import BackgroundRun

_WORKERS = 8
_RETRY_SECONDS = 1.0
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
    num_running: int = 0
    is_closing: bool = False

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

    def admit(self) -> None:
        """One more answer at once, or ApiError: too many of them, or the server is going down."""
        if self.is_closing:
            raise ApiError(ErrorKind.OVERLOADED, "The server is shutting down.", retry_after_seconds=_RETRY_SECONDS)
        limit = self.settings.max_concurrent_requests
        if self.num_running >= limit:
            message = f"Too many requests at once: got {limit + 1}, allowed {limit}."
            raise ApiError(ErrorKind.RATE_LIMITED, message, retry_after_seconds=_RETRY_SECONDS)
        self.num_running += 1

    def release(self) -> None:
        self.num_running -= 1


def new_request_id() -> str:
    return secrets.token_hex(12)


def unix_seconds() -> int:
    return int(time.time())
