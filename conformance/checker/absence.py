"""What a target does not serve at all, asked once and shown: one cause is told once, and is no failure of every scenario.

A path is not served where the target answers as it answers on a path that nobody has (404), or says so itself (405, 501). A
404 in other words is an answer of the protocol, about a model or an id, and is judged like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conformance.checker.client import PATHS, Client, Exchange, TargetError, UpgradeRefusedError
from conformance.checker.dialogue import ask

NOT_SERVED: Final = frozenset({404, 405, 501})
NOBODYS: Final = "nothing-is-served-here"


@dataclass(frozen=True, slots=True)
class Absence:
    """`what` is not served; `evidence` is the exchange that shows it."""

    what: str
    evidence: Exchange
    reason: str


class Surfaces:
    """Asks for each protocol, and for the WebSocket, once a run."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Absence | None] = {}

    def absence(self, protocol: str, feature: str) -> Absence | None:
        """Why a scenario cannot be put to the target: its protocol is not there, or its WebSocket is not. Raises TargetError."""
        missing = self._look(protocol)
        return self._look("websocket") if missing is None and feature == "websocket" else missing

    def _look(self, what: str) -> Absence | None:
        if what not in self._known:
            kept = self._client.take_exchanges()
            self._known[what] = self._upgrade() if what == "websocket" else self._post(what)
            self._client.take_exchanges()
            self._client.put_back(kept)
        return self._known[what]

    def _post(self, protocol: str) -> Absence | None:
        body = ask("Say hello.", max_tokens=16).body(protocol, self._client.model, False)
        exchange = self._client.ask(protocol, body)
        if not is_not_served(self._client, exchange, f"{PATHS[protocol]}-{NOBODYS}"):
            return None
        return Absence(protocol, exchange, f"{protocol} is not served: {told(exchange)}")

    def _upgrade(self) -> Absence | None:
        try:
            self._client.open_websocket().close()
        except UpgradeRefusedError as refusal:
            exchange = refusal.exchange
            return Absence("websocket", exchange, f"WebSocket is not served: the upgrade: {told(exchange)}")
        except TargetError as error:
            exchange = self._client.take_exchanges()[-1]
            return Absence("websocket", exchange, f"WebSocket is not served: the upgrade: {error}")
        return None


def is_not_served(client: Client, exchange: Exchange, nobodys: str) -> bool:
    """True where this answer says that nobody has the path, with this method. `nobodys`: a path to compare with."""
    if exchange.status in NOT_SERVED - {404}:
        return True
    if exchange.status != 404:
        return False
    other = client.send(exchange.protocol, exchange.method, nobodys, exchange.request)
    other.is_evidence = True
    path = exchange.url.removeprefix(client.base_url).split("?")[0]
    return other.status == 404 and _without(other, nobodys) == _without(exchange, path)


def told(exchange: Exchange) -> str:
    """Method, path, status and the first of the body: what a reader needs to believe it."""
    body = exchange.body[:160].decode(errors="replace")
    return f"{exchange.method} {exchange.url.partition('//')[2].partition('/')[2]} answered {exchange.status} {body}".rstrip()


def _without(exchange: Exchange, path: str) -> bytes:
    """The body without what repeats the path."""
    return exchange.body.replace(path.encode(), b"")
