"""What the runtime asks of others, as protocols: a fence over ids, and the script of a scripted model.

The runtime knows neither tool names nor text; these two shapes are all it sees of the words' world.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

TokenMask = NDArray[np.int32]
"""Bitmask over the vocabulary, [ceil(vocab / 32)] int32, bit i%32 of word i//32 set = token i allowed."""


class TokenFence(Protocol):
    """Decides, one token at a time, what may be generated. One per lane; implemented in `zllm_ref.fence`.

    The runtime applies `allowed()` between output head and sampling on every path, takes `forced()` tokens without asking
    the sampler, and calls `advance` with every token that really entered the sequence. Drafts walk a `clone()`.
    """

    def allowed(self) -> TokenMask | None:
        """The tokens that may come next; None: every token (costs nothing, the usual case in free text)."""

    def forced(self) -> Sequence[int]:
        """Ids that must come next whatever the logits say; empty: none."""

    def advance(self, token_id: int) -> None:
        """`token_id` was appended. Raises ValueError when it was not allowed: our bug, never the client's."""

    def clone(self) -> TokenFence:
        """An independent copy in the same state."""

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last `num_tokens` advances."""

    def explain(self) -> str:
        """The phase, in one line, for logs and the inspector."""


class ScriptPort(Protocol):
    """Ids that a scripted model emits instead of thinking: the words' world writes them, the runtime only plays them."""

    def next_ids(self, produced: Sequence[int]) -> Sequence[int]:
        """The ids of the next engine step, given the ids produced so far; empty: the script is over."""


Json = dict[str, Any]
