"""A region under a grammar: llguidance computes its masks, this file walks it forward, back and sideways.

A state of a region is a `RegionStep`, a leaf of a tree of consumed tokens that all copies of a fence share. The matchers of
llguidance are expensive to copy once they have read much, so a copy takes no matcher along: whoever asks for the mask of a
step gets the matcher that stands nearest, moved there by rollback and replay. A draft that is walked and given up costs its
own length, nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher

from zllm_ref.fence.grammar import Node
from zllm_ref.fence.mask import TokenMask

_FAR = 24
"""Beyond this many tokens to undo and redo, a second matcher is cheaper than moving the first to and fro."""
_MOST_MATCHERS = 8
_MOST_MASKS = 64
"""So many steps keep their mask; a long answer at a large vocabulary would otherwise keep some hundred megabytes."""


class RegionStep:
    """After `token_id` came, `depth` tokens into the region. What was computed here is kept here."""

    __slots__ = ("depth", "forced", "is_free", "mask", "may_end", "parent", "region", "token_id")

    def __init__(self, region: Region, parent: RegionStep | None, token_id: int) -> None:
        self.region = region
        self.parent = parent
        self.token_id = token_id
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.mask: TokenMask | None = None
        self.forced: tuple[int, ...] | None = None
        self.may_end: bool | None = None
        self.is_free: bool | None = None


class Region:
    """One opened region. Steps of different regions never meet."""

    def __init__(self, root: Node, prototype: LLMatcher, *, is_forcing: bool = True) -> None:
        self.root = root
        self.start = RegionStep(self, None, -1)
        self._is_forcing = is_forcing
        self._masked: deque[RegionStep] = deque()
        self._matchers: list[tuple[Any, RegionStep]] = [(prototype.deep_copy(), self.start)]

    def after(self, step: RegionStep, token_id: int) -> RegionStep | None:
        """The step behind `token_id`, or None where the grammar forbids it."""
        matcher = self._matcher_at(step)
        if matcher.try_consume_tokens([token_id]) != 1:
            return None
        following = RegionStep(self, step, token_id)
        self._matchers[0] = (matcher, following)
        return following

    def mask(self, step: RegionStep) -> TokenMask:
        if step.mask is None:
            step.mask = np.frombuffer(self._matcher_at(step).compute_bitmask(), dtype=np.int32)
            self._masked.append(step)
            if len(self._masked) > _MOST_MASKS:
                self._masked.popleft().mask = None
        return step.mask

    def path(self, step: RegionStep) -> list[int]:
        """The ids from the region's beginning to `step`."""
        return _way(self.start, step)[1]

    def forced(self, step: RegionStep) -> tuple[int, ...]:
        """The ids that must follow, in the tokenizer's own spelling."""
        if step.forced is None:
            step.forced = tuple(self._matcher_at(step).compute_ff_tokens()) if self._is_forcing else ()
        return step.forced

    def may_end(self, step: RegionStep) -> bool:
        """The region may end here."""
        if step.may_end is None:
            step.may_end = bool(self._matcher_at(step).is_accepting())
        return step.may_end

    def legal_prefix(self, step: RegionStep, ids: Sequence[int]) -> int:
        """How many of `ids` the grammar takes from here, in any spelling; nothing moves."""
        return int(self._matcher_at(step).validate_tokens(list(ids)))

    def _matcher_at(self, step: RegionStep) -> Any:
        """A matcher that has consumed exactly the way to `step`; it becomes the first of the list."""
        matcher, at = self._matchers[0]
        if at is step:
            return matcher
        plans = [(*_way(at, step), number) for number, (_, at) in enumerate(self._matchers)]
        undo, redo, number = min(plans, key=lambda plan: plan[0] + len(plan[1]))
        matcher, at = self._matchers.pop(number)
        if undo > _FAR and len(self._matchers) < _MOST_MATCHERS - 1:
            self._matchers.append((matcher.deep_copy(), at))  # somebody lives there
        if undo:
            matcher.rollback(undo)
        if redo:
            consumed = matcher.try_consume_tokens(redo)
            assert consumed == len(redo), f"region: got {consumed} tokens replayed, allowed {len(redo)}"
        self._matchers.insert(0, (matcher, step))
        return matcher


def _way(origin: RegionStep, target: RegionStep) -> tuple[int, list[int]]:
    """From `origin` back to the last common step (how many tokens to undo), and forward to `target` (the ids to redo)."""
    undo, redo = 0, list[int]()
    while origin is not target:
        if origin.depth >= target.depth:
            assert origin.parent is not None, "steps of two regions: they have nothing in common"
            origin, undo = origin.parent, undo + 1
        else:
            assert target.parent is not None
            redo.append(target.token_id)
            target = target.parent
    redo.reverse()
    return undo, redo
