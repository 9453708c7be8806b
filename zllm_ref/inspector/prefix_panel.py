"""What the prompt is made of, what each part costs, and what broke its prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zllm_ref.inspector.axis import Axis, Span
from zllm_ref.inspector.composition import Share, composition
from zllm_ref.inspector.prefix_cause import TITLES, Fork, cause_of_fork
from zllm_ref.inspector.prefix_words import Named
from zllm_ref.inspector.prompt_view import PromptView

WINDOW = 64


@dataclass(frozen=True)
class Prices:
    """Money for a million tokens of prompt, computed and cached."""

    input: float = 3.0
    cached: float = 0.3
    currency: str = "USD"


@dataclass(frozen=True)
class Other:
    """The nearest earlier state. `view` None: only its tokens are known (`axis`), not its conversation."""

    axis: Axis
    length: int
    fork: int
    request: str | None
    cache_id: str | None
    namespace_differs: bool
    view: PromptView | None


def shares(
    view: PromptView, cached: int, prices: Prices, milliseconds_per_token: float | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The parts with their costs, and their sum."""
    parts = composition(view)
    shown = [{"kind": part.kind, **_cost(part, cached, prices, milliseconds_per_token)} for part in parts]
    total = Share("total", sum(part.tokens for part in parts), 1.0 if view.axis.num_prompt else 0.0, ((0, view.axis.num_prompt),))
    return shown, _cost(total, cached, prices, milliseconds_per_token)


def _cost(part: Share, cached: int, prices: Prices, milliseconds_per_token: float | None) -> dict[str, Any]:
    hit = sum(max(0, min(end, cached) - start) for start, end in part.spans)
    rest = part.tokens - hit
    return {
        "tokens": part.tokens,
        "share": part.share,
        "cached_tokens": hit,
        "spans": [list(span) for span in part.spans if span[1] > span[0]],
        "cost_cached": part.tokens * prices.cached / 1e6,
        "cost_uncached": part.tokens * prices.input / 1e6,
        "cost": (hit * prices.cached + rest * prices.input) / 1e6,
        "ms_uncached": None if milliseconds_per_token is None else round(part.tokens * milliseconds_per_token, 3),
    }


def nearest_shown(view: PromptView, other: Other, reused: int) -> dict[str, Any]:
    """Both texts around the fork."""
    fork, axis = other.fork, view.axis
    before: Span = (max(0, fork - WINDOW), fork)
    now: Span = (fork, min(axis.num_prompt, fork + WINDOW))
    earlier: Span = (fork, min(other.length, fork + WINDOW))
    return {
        "request": other.request,
        "what": "request" if other.request is not None else "state",
        "cache_id": other.cache_id,
        "length": other.length,
        "fork": fork,
        "lost_tokens": max(0, other.length - reused),
        "namespace_differs": other.namespace_differs,
        "before": axis.text_of(before),
        "earlier": other.axis.text_of(earlier),
        "now": axis.text_of(now),
        "window": {"before": list(before), "now": list(now), "earlier": list(earlier)},
        "segment": axis.segment_of(fork) if fork < axis.num_prompt else None,
    }


def named(cause: Named, tokens: Span | None, lost: int) -> dict[str, Any]:
    return {
        "name": cause.name,
        "title": TITLES[cause.name],
        "detail": cause.detail,
        "said": [sentence.shown() for sentence in cause.said],
        "tokens": None if tokens is None else list(tokens),
        "lost_tokens": lost,
    }


def fork_cause(view: PromptView, earlier: PromptView, fork: int, length: int) -> dict[str, Any] | None:
    """The cause where two texts differ; None: all of the earlier one is a beginning of this one."""
    if fork >= length or fork >= view.axis.num_prompt:
        return None
    found = cause_of_fork(Fork(view, earlier, fork))
    end = min(view.axis.num_prompt, fork + 1)
    return named(found, (fork, max(fork, end)), length - fork)
