"""The sockets: HTTP and WebSocket in, HTTP and WebSocket out. The only place that waits.

Knows: routes, headers, status codes, who may come in, when a client has gone, when a stream has been silent for too long.
Must never know: what a field of a body means (protocols), how a token is made (engine), where K/V lie.

The runtime's thread hands over the events of a step with one call; all events of a wake-up leave in one write.
"""

from zllm_ref.server.app import create_app, run
from zllm_ref.server.inspect_api import Inspect

__all__ = ["Inspect", "create_app", "run"]
