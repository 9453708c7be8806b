"""A near miss: a prompt that has nearly all of a saved state in it, and cannot reuse the rest because of a small difference.

    saved    s s s s s|12:00|c c c c c c c c c c c      the rows after the fork are lost, although
    prompt   s s s s s|12:01|c c c c c c c c c c c ...  the tokens are the same: their keys saw another past
                      ^ fork

A clock in the system prompt, a template that renders the last turn anew: the server is right to compute, and the client loses
time on every turn. So it is said, with the tokens around the fork (the words' side turns them into text).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from zllm_ref.cache.block import TokenIds
from zllm_ref.cache.prefix_graph import ID_BYTES, ids_of, num_common_tokens

_log = logging.getLogger(__name__)

_PROBE_TOKENS = 16
_PROBE_STEPS = (0, 8, 16, 32, 64, 128, 256)
_WIDEST_SHIFT = 1024


@dataclass(frozen=True)
class NearMissPolicy:
    """From which likeness on a difference is worth a line."""

    least_common_tokens: int = 1025
    least_common_share: float = 0.9
    """Of the saved state's tokens."""
    window_tokens: int = 32
    """Tokens to show on each side of the fork."""


@dataclass(frozen=True)
class NearMiss:
    """What was nearly reused. Windows start at `window_start`; the fork is `fork - window_start` tokens into both."""

    cache_id: str
    namespace: str
    fork: int
    """Tokens that both begin with: the position of the first difference."""
    common_tokens: int
    """Tokens of the saved state that the prompt has too, before the fork and, shifted by a constant, behind it."""
    saved_length: int
    prompt_length: int
    reused_length: int
    window_start: int
    saved_window: tuple[int, ...]
    prompt_window: tuple[int, ...]

    @property
    def lost_tokens(self) -> int:
        """Rows of the saved state that had to be computed again, or would have had to."""
        return self.saved_length - self.reused_length


def likest_near_miss(
    policy: NearMissPolicy, candidates: Iterable[tuple[str, bytes]], *, namespace: str, prompt: bytes, reused_length: int
) -> NearMiss | None:
    """Of saved states (cache id, tokens as bytes) the one that has most in common with the prompt and was not reused whole."""
    best: NearMiss | None = None
    for cache_id, saved in candidates:
        if len(saved) // ID_BYTES == reused_length and prompt.startswith(saved):
            return None  # a whole state was reused: nothing was lost
        miss = find_near_miss(
            policy,
            cache_id=cache_id,
            namespace=namespace,
            saved=ids_of(saved),
            prompt=ids_of(prompt),
            reused_length=reused_length,
        )
        if miss is not None and (best is None or miss.common_tokens > best.common_tokens):
            best = miss
    return best


def log_near_miss(miss: NearMiss) -> None:
    """The line for whoever has no text to show."""
    _log.info(
        "near miss: prompt of %d tokens forks from %s (%d tokens) at %d, %d in common, %d reused: saved %s, prompt %s",
        miss.prompt_length,
        miss.cache_id,
        miss.saved_length,
        miss.fork,
        miss.common_tokens,
        miss.reused_length,
        miss.saved_window,
        miss.prompt_window,
    )


def find_near_miss(
    policy: NearMissPolicy, *, cache_id: str, namespace: str, saved: TokenIds, prompt: TokenIds, reused_length: int
) -> NearMiss | None:
    """Compares one saved state with a prompt; None: another state gave more, or the two have too little in common."""
    if len(saved) < policy.least_common_tokens:
        return None
    fork = num_common_tokens(saved.tobytes(), prompt.tobytes())
    if fork >= min(len(saved), len(prompt)) or reused_length > fork:
        return None
    common = fork + _common_after(saved, prompt, fork)
    if common < policy.least_common_tokens or common < policy.least_common_share * len(saved):
        return None
    start = max(0, fork - policy.window_tokens)
    end = fork + policy.window_tokens
    return NearMiss(
        cache_id=cache_id,
        namespace=namespace,
        fork=fork,
        common_tokens=common,
        saved_length=len(saved),
        prompt_length=len(prompt),
        reused_length=reused_length,
        window_start=start,
        saved_window=tuple(saved[start:end].tolist()),
        prompt_window=tuple(prompt[start:end].tolist()),
    )


def _common_after(saved: TokenIds, prompt: TokenIds, fork: int) -> int:
    """Tokens equal behind the fork under one constant shift: the one under which a run of saved tokens is found again."""
    for step in _PROBE_STEPS:
        at = fork + step
        probe = saved[at : at + _PROBE_TOKENS]
        if len(probe) < _PROBE_TOKENS:
            return 0
        first = max(fork, at - _WIDEST_SHIFT)
        place = _find(prompt[first : at + _WIDEST_SHIFT], probe)
        if place is not None:
            shift = first + place - at
            begin = max(fork, fork - shift)
            length = min(len(saved) - begin, len(prompt) - begin - shift)
            return int(np.count_nonzero(saved[begin : begin + length] == prompt[begin + shift : begin + shift + length]))
    return 0


def _find(within: TokenIds, probe: TokenIds) -> int | None:
    """Where `probe` begins in `within`, in whole tokens."""
    data, wanted = within.tobytes(), probe.tobytes()
    place = data.find(wanted)
    while place >= 0 and place % ID_BYTES:
        place = data.find(wanted, place + 1)
    return place // ID_BYTES if place >= 0 else None
