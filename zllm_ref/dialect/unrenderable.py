"""The one refusal of this room: a value that a dialect cannot write down without changing it."""

from __future__ import annotations


class UnrenderableValue(ValueError):
    """Rendering would lie: what the model would read is not what the client said. The message says where, got, allowed."""
