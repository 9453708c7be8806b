"""Who may come in, and which part of the cache is theirs."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import Scope

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.config import ServerSettings
from zllm_ref.server.http_io import header

_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Caller:
    """`owner` of stored responses: one a key, never shared. `namespace` of the prefix cache: the same, unless keys share it."""

    owner: str
    namespace: str


def authenticate(scope: Scope, settings: ServerSettings) -> Caller:
    """Who calls; nobody in particular where there are no keys. Raises ApiError(UNAUTHENTICATED)."""
    if not settings.api_keys:
        return Caller("", "")
    key = presented_key(scope)
    if not key:
        message = "No API key: got neither `Authorization: Bearer KEY` nor `x-api-key: KEY`, allowed one of them."
        raise ApiError(ErrorKind.UNAUTHENTICATED, message)
    # Every key is compared, each in constant time: how long it takes says nothing about which one is near.
    matches = [hmac.compare_digest(key.encode("latin-1", "replace"), known.encode()) for known in settings.api_keys]
    if not any(matches):
        raise ApiError(ErrorKind.UNAUTHENTICATED, "Incorrect API key provided.")
    owner = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Caller(owner, "" if settings.cache_sharing else owner)


def refuse_pages_of_other_sites(scope: Scope, settings: ServerSettings) -> None:
    """For an upgrade, which browsers let any page ask for and read. Raises ApiError(FORBIDDEN).

    Where keys are asked for, a page must have one; where none are, only a page of this server may talk to it. Clients that are
    no browsers send no `Origin`.
    """
    origin = header(scope, b"origin")
    if settings.api_keys or not origin or urlsplit(origin).netloc.lower() == header(scope, b"host").lower():
        return
    message = f"origin: got {origin[:200]!r}, allowed none or this server's own, as it asks for no API key."
    raise ApiError(ErrorKind.FORBIDDEN, message)


def presented_key(scope: Scope) -> str:
    authorization = header(scope, b"authorization")
    if authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip()
    return header(scope, b"x-api-key").strip()
