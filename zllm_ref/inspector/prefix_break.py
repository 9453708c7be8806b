"""Finds the earlier state that a prompt should have begun with, and says why it did not, or not all the way.

Looked at in turn: earlier requests of the same cache namespace, earlier requests of the caller's other namespaces, saved states
that no recorded request left behind (of an earlier process, or of another dialect).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from zllm_ref.engine.bridge import cache_namespace
from zllm_ref.engine.loading import Loaded
from zllm_ref.inspector.axis import Axis
from zllm_ref.inspector.cache_contents import saved_states
from zllm_ref.inspector.nearest import Nearest, nearest_record, nearest_state
from zllm_ref.inspector.prefix_panel import Other, Prices, fork_cause, named, nearest_shown, shares
from zllm_ref.inspector.prefix_words import cause
from zllm_ref.inspector.record import Record
from zllm_ref.inspector.view import View

_WORTH_NAMING = 16
"""Tokens that another namespace or dialect must have more than the own one, before it is called the cause."""


class PrefixBreak:
    def __init__(
        self, view: View, loaded: Loaded, records: Sequence[Record], mine: Callable[[str], bool],
        view_of: Callable[[Record], View], *, shows_states: bool,
    ) -> None:  # fmt: skip
        self._view = view
        self._record = view.record
        self._loaded = loaded
        self._records = records
        self._mine = mine
        self._view_of = view_of
        self._shows_states = shows_states
        self._cached = self._record.report.cached_tokens if self._record.report is not None else 0

    def shown(self, prices: Prices) -> dict[str, Any]:
        """The whole panel."""
        parts, total = shares(self._view, self._cached, prices, self._milliseconds_per_token)
        return {
            "prices": {"input": prices.input, "cached": prices.cached, "currency": prices.currency},
            "composition": parts,
            "total": total,
            "nearest": None if self._other is None else nearest_shown(self._view, self._other, self._cached),
            "cause": self.cause,
        }

    @property
    def _milliseconds_per_token(self) -> float | None:
        """As this request was computed; where it computed next to nothing, as the newest that did."""
        for record in (self._record, *reversed(self._records)):
            timings, report = record.timings, record.report
            if timings is not None and report is not None and report.prompt_tokens - report.cached_tokens >= _WORTH_NAMING:
                return 1000 * timings.prefill / (report.prompt_tokens - report.cached_tokens)
        return None

    @cached_property
    def _own_namespace(self) -> str:
        return cache_namespace(self._view.request)

    @cached_property
    def _found(self) -> tuple[Nearest | None, str | None]:
        """The nearest earlier state, and the cause where the kind of state is the cause."""
        own = nearest_record(self._record, self._records, lambda one: self._namespace_of(one) == self._own_namespace)
        foreign = nearest_record(self._record, self._records, lambda one: self._namespace_of(one) != self._own_namespace)
        known = {name for one in self._records for name in (one.kept_cache_id,) if name is not None}
        states = saved_states(self._loaded.cache, self._mine) if self._shows_states else []
        left = [state for state in states if state.cache_id not in known]
        ids, identity = self._record.prompt_ids, self._loaded.cache.identity
        saved = nearest_state(ids, left, lambda one: one.identity == identity and one.namespace == self._own_namespace)
        best = own if saved is None or (own is not None and own.fork >= saved.fork) else saved
        reach = max(best.fork if best is not None else 0, self._cached)
        if foreign is not None and foreign.fork >= reach + _WORTH_NAMING:
            return foreign, "other_namespace"
        other = nearest_state(ids, left, lambda one: one.identity in self._loaded.siblings)
        if other is not None and other.fork >= reach + _WORTH_NAMING:
            return other, "other_dialect_revision"
        return best, None

    @cached_property
    def _other(self) -> Other | None:
        nearest = self._found[0]
        if nearest is None:
            return None
        record, state = nearest.record, nearest.state
        view = self._view_of(record) if record is not None else None
        namespace = self._namespace_of(record) if record is not None else state.namespace if state is not None else ""
        return Other(
            axis=view.axis if view is not None else Axis(self._loaded.vocabulary, (), nearest.ids),
            length=nearest.length,
            fork=nearest.fork,
            request=record.request_id if record is not None else None,
            cache_id=record.kept_cache_id if record is not None else state.cache_id if state is not None else None,
            namespace_differs=namespace != self._own_namespace,
            view=view,
        )

    @cached_property
    def cause(self) -> dict[str, Any] | None:
        """None: everything that could be reused was."""
        if self._record.report is None:
            return None
        nearest, kind = self._found
        if nearest is None:
            if any(one.number < self._record.number and one.request is not None for one in self._records):
                return named(cause("unknown", "none_begins_alike"), None, 0)
            return named(cause("first_request", "none_shares"), None, 0)
        fork, lost = nearest.fork, max(0, nearest.fork - self._cached)
        span = (self._cached, min(fork, self._view.axis.num_prompt))
        if kind == "other_namespace":
            return named(cause(kind, "salt_of_request"), span, lost)
        if kind == "other_dialect_revision" and nearest.state is not None:
            was = self._loaded.siblings[nearest.state.identity]
            return named(cause(kind, "dialect_of_state", was=was, now=self._loaded.dialect.name), span, lost)
        usable = min(fork, self._view.axis.num_prompt - 1)
        if self._cached < usable:
            return self._not_reused(nearest, span, usable - self._cached)
        assert self._other is not None
        if self._other.view is None:
            if fork < min(nearest.length, self._view.axis.num_prompt):
                return named(cause("unknown", "older_than_record"), None, 0)
            return None
        return fork_cause(self._view, self._other.view, fork, nearest.length)

    def _not_reused(self, nearest: Nearest, span: tuple[int, int], lost: int) -> dict[str, Any] | None:
        """The tokens are the same and were computed all the same."""
        earlier = nearest.record
        if earlier is not None and (earlier.ended_at is None or earlier.ended_at > self._admitted_at):
            return named(cause("still_running", "not_ended"), span, lost)
        if not self._loaded.cache.is_cuttable:
            if nearest.fork < nearest.length and self._other is not None and self._other.view is not None:
                found = fork_cause(self._view, self._other.view, nearest.fork, nearest.length)
                if found is not None and found["name"] not in ("unknown", "other_conversation"):
                    return found
            return named(cause("whole_states_only", "not_cuttable", count=nearest.length, fork=nearest.fork), span, lost)
        return named(cause("evicted", "given_up"), span, lost)

    @property
    def _admitted_at(self) -> float:
        timings = self._record.timings
        waited = timings.queue if timings is not None else 0.0
        return self._record.received + (self._record.render_seconds or 0.0) + waited

    @staticmethod
    def _namespace_of(record: Record) -> str:
        return cache_namespace(record.request) if record.request is not None else ""
