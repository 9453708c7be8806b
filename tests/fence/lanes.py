"""A model of nothing but noise: what it would like to say next depends on (seed, position) alone.

The three ways in which a runtime uses a fence, each as plainly as it can be written. All three must say the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from zllm_ref.fence import Phase, TokenFence
from zllm_ref.fence.mask import TokenMask, ids_of

MOST = 4000
Build = Callable[[], TokenFence]


def wish(mask: TokenMask | None, size: int, seed: int, position: int) -> int:
    """The token that the model of `seed` samples at `position` under the mask."""
    allowed = ids_of(mask) if mask is not None else range(size)
    assert len(allowed) > 0, f"no token is allowed at position {position}"
    return allowed[random.Random(f"{seed} {position}").randrange(len(allowed))]


def plain(fence: TokenFence, size: int, seed: int, said: list[int] | None = None) -> list[int]:
    """One token after the other; forced ones are taken without asking."""
    ids = list(said or ())
    while fence.phase is not Phase.END and len(ids) < MOST:
        forced = fence.forced()
        for token_id in forced or (wish(fence.allowed(), size, seed, len(ids)),):
            fence.advance(token_id)
            ids.append(token_id)
    return ids


def batch(fences: list[TokenFence], size: int, seeds: list[int]) -> list[list[int]]:
    """All lanes take one step each in turn; a lane that is at its end leaves."""
    lanes: list[list[int]] = [[] for _ in fences]
    while any(fence.phase is not Phase.END and len(ids) < MOST for fence, ids in zip(fences, lanes, strict=True)):
        for fence, ids, seed in zip(fences, lanes, seeds, strict=True):
            if fence.phase is Phase.END:
                continue
            for token_id in fence.forced() or (wish(fence.allowed(), size, seed, len(ids)),):
                fence.advance(token_id)
                ids.append(token_id)
    return lanes


def speculative(fence: TokenFence, size: int, seed: int, luck: random.Random) -> list[int]:
    """Drafts of up to six tokens, right most of the time; each row has its own mask; the true fence sees accepted tokens only."""
    ids: list[int] = []
    while fence.phase is not Phase.END and len(ids) < MOST:
        probe = fence.clone()
        draft: list[int] = []
        while len(draft) < luck.randint(1, 6) and probe.phase is not Phase.END:
            forced = probe.forced()
            token_id = forced[0] if forced else wish(probe.allowed(), size, seed, len(ids) + len(draft))
            if not forced and luck.random() < 0.3:
                token_id = wish(probe.allowed(), size, seed + 1, len(ids) + len(draft))
            probe.advance(token_id)
            draft.append(token_id)

        walker = fence.clone() if luck.random() < 0.5 else fence
        rows, walked = [], 0
        for token_id in draft:
            forced = walker.forced()
            rows.append(forced[0] if forced else wish(walker.allowed(), size, seed, len(ids) + len(rows)))
            walker.advance(token_id)
            walked += 1
        if walker.phase is not Phase.END:
            forced = walker.forced()
            rows.append(forced[0] if forced else wish(walker.allowed(), size, seed, len(ids) + len(rows)))
        if walker is fence:
            fence.rollback(walked)

        accepted = 0
        while accepted < len(draft) and draft[accepted] == rows[accepted]:
            accepted += 1
        for token_id in rows[: accepted + 1]:
            fence.advance(token_id)
            ids.append(token_id)
    return ids
