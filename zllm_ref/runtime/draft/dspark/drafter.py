"""Drafts whole blocks in one parallel pass over the target's own rows, kept as a cache of keys and values in its state.

    position        … n-2     n-1   │   n       n+1     n+2 …
    in the state      ######## rows │ newest id (fed by the next step)
    context           c(n-2)  c(n-1)│
    block                           │ newest,   mask,   mask …       one pass
    guesses                         │ for n+1,  n+2,    n+3 …        each by the head, the guess before it, a chance

The cache (`dspark_kv`) is a growing tensor of the session's state: it is forked, saved, restored, cut and accounted with all
others, and a row depends on its token's rows of the target alone. It is advisory: a row of zeros is a row that is not there
(keys are normed, so a written row has no zero key). Where the newest rows are missing, after a restore from a cache without
them, nothing is guessed until enough new ones are there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.draft.dspark.block import BlockContext, DsparkBlock
from zllm_ref.runtime.draft.dspark.heads import DsparkHeads
from zllm_ref.runtime.draft.dspark.shape import CACHE
from zllm_ref.runtime.state import SessionState

LEAST_CONTEXT = 8
"""Newest rows of the context without which nothing is guessed; fewer where the sequence is shorter."""


class DsparkDrafter:
    """Guesses for one sequence, whose `state` it shares with the target: it writes its own cache alone."""

    def __init__(self, block: DsparkBlock, heads: DsparkHeads, state: SessionState, most_length: int) -> None:
        self._block = block
        self._heads = heads
        self._state = state
        self._most_length = most_length
        self._newest_id = 0
        self._newest: Tensor | None = None
        """The context row before the newest id, [1, context width]."""
        self._position = 0
        """Of the newest id."""
        self._chances: list[float] = []

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        count = len(next_ids)
        context = self._block.context(hidden[:count])
        positions = torch.arange(start, start + count, device=hidden.device)
        self._state.tensors[CACHE][:, start : start + count].copy_(self._block.context_keys_values(context, positions))
        self._newest = context[-1:]
        self._newest_id = next_ids[-1]
        self._position = start + count

    def propose(self, limit: int) -> list[int]:
        self._chances = []
        count = min(limit, self._most_length)
        if self._newest is None or count < 1:
            return []
        context = self._window()
        num_needed = min(LEAST_CONTEXT, self._position)
        if not bool(context.visible[:, self._block.shape.window - num_needed :].all()):
            return []
        device = context.visible.device
        anchor = torch.tensor([self._newest_id], device=device)
        start = torch.tensor([self._position], device=device)
        rows = self._block.rows(self._heads.embedded(anchor), self._newest, start, [context])
        return self._read(rows[:count], anchor)

    def judge(self, proposed: int, accepted: int) -> None:
        pass

    def chances(self) -> list[float]:
        """For each guess of the last proposal: the chance that it is right, given that those before it are."""
        return self._chances

    def _window(self) -> BlockContext:
        """The newest rows of the cache, always `window` of them; those that are not there are zeros, and not visible."""
        window = self._block.shape.window
        rows = self._state.tensors[CACHE][:, max(0, self._position - window) : self._position]
        rows = F.pad(rows, (0, 0, 0, 0, 0, 0, window - rows.shape[1], 0))
        return BlockContext(rows, rows[0, :, 0].ne(0).flatten(1).any(-1)[None])

    def _read(self, rows: Tensor, anchor: Tensor) -> list[int]:
        """Block rows [n, width] → guesses, one after the other; and their chances, all at the end."""
        heads = self._heads
        base = heads.base(rows)
        previous, guesses, links, sure = anchor, [], [], []
        for place in range(rows.shape[0]):
            link = heads.link(heads.embedded(previous), rows[place : place + 1])
            logits = base[place] + heads.correction(link)[0]
            best = logits.argmax()
            previous = heads.drafted_ids[best][None]
            guesses.append(previous)
            links.append(link)
            sure.append(logits[best] - logits.logsumexp(-1))
        evidence = heads.evidence(rows, torch.cat(links), torch.stack(sure))
        self._chances = heads.chances(evidence, torch.arange(rows.shape[0], device=rows.device)).tolist()
        return [int(token) for token in torch.cat(guesses).tolist()]
