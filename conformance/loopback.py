"""The standard library's HTTP server on a free port of this machine."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer


class LoopbackServer(ThreadingHTTPServer):
    """One thread a connection; ends with the process."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    def server_bind(self) -> None:
        """Without the name lookup of the standard library, which waits for a resolver."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])
