"""What is allowed at one point of an answer, and why, in words for a person who debugs a server."""

from __future__ import annotations

from dataclasses import dataclass

from zllm_ref.fence.mask import count_allowed, ids_of
from zllm_ref.fence.oracle import Oracle
from zllm_ref.fence.phase_machine import Phase
from zllm_ref.fence.token_fence import TokenFence

_MOST_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Explanation:
    """`refused`: the first token of the text that was not allowed, and its place; then the rest is about the place before it.

    `allowed` holds the spellings of all allowed tokens, or the first of them; `num_allowed` counts them all.
    """

    where: str
    num_allowed: int | None
    allowed: tuple[str, ...]
    markers: tuple[str, ...]
    forced: str
    why: tuple[str, ...]
    refused: str | None = None


def explain(fence: TokenFence, token_ids: list[int]) -> Explanation:
    """The fence after the ids, one by one; it stays where it stopped."""
    vocabulary = fence.plan.vocabulary
    refused: str | None = None
    for position, token_id in enumerate(token_ids):
        if fence.legal_prefix((token_id,)) != 1:
            before = vocabulary.decode(token_ids[max(0, position - 20) : position])
            refused = f"token {position} {vocabulary.decode([token_id])!r} after {before!r}"
            break
        fence.advance(token_id)
    mask = fence.allowed()
    allowed = ids_of(mask) if mask is not None else []
    texts = [token_id for token_id in allowed if vocabulary.marker_text(token_id) is None]
    markers = [vocabulary.marker_text(token_id) or "" for token_id in allowed if vocabulary.marker_text(token_id) is not None]
    return Explanation(
        where=fence.explain(),
        num_allowed=None if mask is None else count_allowed(mask),
        allowed=tuple(vocabulary.decode([token_id]) for token_id in texts[:_MOST_SHOWN]),
        markers=tuple(markers),
        forced=vocabulary.decode(list(fence.forced())),
        why=tuple(_reasons(fence)),
        refused=refused,
    )


def _reasons(fence: TokenFence) -> list[str]:
    match fence.phase:
        case Phase.REGION:
            return [f"the grammar expects {words}" for words in _expected(fence)]
        case Phase.REASONING:
            return ["the reasoning is open: no call and no end of the turn before its closing marker"]
        case Phase.OPENING:
            return ["nothing was said yet: the model may still open its reasoning", *_text_reasons(fence)]
        case Phase.TEXT:
            return _text_reasons(fence)
        case Phase.END:
            return ["the turn is over"]


def _text_reasons(fence: TokenFence) -> list[str]:
    if fence.plan.region is None:
        return ["free text without calls: the trigger of calls is masked, and every marker but the ends of the turn"]
    return ["free text: every text token, the ends of the turn, and the trigger of calls where it may stand"]


def _expected(fence: TokenFence) -> list[str]:
    found = fence.region_path()
    if found is None:
        return []
    root, ids = found
    vocabulary = fence.plan.vocabulary
    oracle: Oracle | None = Oracle(root, vocabulary.marker_id)
    for token_id in ids:
        marker = vocabulary.marker_text(token_id)
        oracle = oracle.after(vocabulary.token_bytes(token_id) if marker is None else marker) if oracle is not None else None
    return oracle.expected() if oracle is not None else []
