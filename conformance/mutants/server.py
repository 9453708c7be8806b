"""A small server that answers all three protocols right, and one thing wrong on demand: the target that proves the scenarios.

Standard library HTTP, one thread a connection, loopback only. `right_server` is told by name what to do wrong; told nothing,
every scenario passes on it. Not an example to follow for anything but the wire.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from conformance.loopback import LoopbackServer
from conformance.mutants.handler import Handler
from conformance.mutants.state import MODEL, State

__all__ = ["MODEL", "RightServer", "right_server"]


class RightServer(LoopbackServer):
    """Right, but for `wrongs`."""

    request_queue_size = 64

    def __init__(self, wrongs: frozenset[str] = frozenset()) -> None:
        super().__init__(Handler)
        self.state = State(wrongs)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are no news; all else is shown."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


@contextmanager
def right_server(*wrongs: str) -> Iterator[str]:
    """The base URL of a server that does nothing wrong but what is named."""
    server = RightServer(frozenset(wrongs))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
