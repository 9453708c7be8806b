"""All that the inspector can be asked: one method a path of `docs/inspector.md`, plain JSON values out.

Every method takes the caller (whose key asks) and answers with that caller's facts only. They block and may compute: a server
calls them in a thread.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import zllm_ref
from zllm_ref.canonical.error import ApiError
from zllm_ref.engine.bridge import Engine, belongs_to, cache_namespace
from zllm_ref.engine.loading import Loaded
from zllm_ref.inspector import cache_contents, decode_panel
from zllm_ref.inspector.cache_contents import Use
from zllm_ref.inspector.context_panel import context
from zllm_ref.inspector.conversation_panel import conversation
from zllm_ref.inspector.kv_figures import kv_figures
from zllm_ref.inspector.playground import Playground
from zllm_ref.inspector.prefix_break import PrefixBreak
from zllm_ref.inspector.prefix_panel import Prices
from zllm_ref.inspector.problem import InspectProblem, not_found
from zllm_ref.inspector.record import Record
from zllm_ref.inspector.recorder import NUM_ALTERNATIVES, Recorder
from zllm_ref.inspector.summary import summary
from zllm_ref.inspector.token_panels import segments, tokens
from zllm_ref.inspector.view import Held, View
from zllm_ref.inspector.wire_panel import wire

_log = logging.getLogger(__name__)
_MOST_VIEWS = 4
_CAUSES_A_LOOK = 4
"""Requests whose cause is worked out for one look at the list: the rest comes with the next."""
_MOST_KV_TOKENS = 10_000_000


@dataclass(frozen=True)
class Caller:
    """Whose key asks: `owner` of requests, `namespace` of the cache. `is_alone`: no other key shares the namespace."""

    owner: str = ""
    namespace: str = ""
    is_alone: bool = True


class Inspector:
    def __init__(self, engine: Engine, recorder: Recorder, *, keys_required: bool = False, prices: Prices | None = None) -> None:
        self._engine = engine
        self._recorder = recorder
        self._keys_required = keys_required
        self._prices = prices or Prices()
        self._views: OrderedDict[tuple[str, int, str], View] = OrderedDict()
        self._lock = threading.Lock()
        self.playground = Playground(engine)

    # ---- the server -------------------------------------------------------------------------------------------------

    def about(self, caller: Caller | None) -> dict[str, Any]:
        """`caller` None: no key was shown where one is needed; then only that is said."""
        loaded = self._loaded_or_none() if caller is not None else None
        shown = caller is not None
        return {
            "version": zllm_ref.__version__ if shown else None,
            "model": loaded.card.id if loaded is not None else None,
            "architecture": loaded.model.architecture if loaded is not None else None,
            "dialect": loaded.dialect.name if loaded is not None else None,
            "vocabulary_size": loaded.vocabulary.size if loaded is not None else None,
            "context_length": loaded.model.context_length if loaded is not None else None,
            "keys_required": self._keys_required,
            "namespace": caller.namespace if caller is not None else None,
            "max_requests": self._recorder.most_requests if shown else None,
            "max_bytes": self._recorder.most_bytes if shown else None,
            "alternatives": NUM_ALTERNATIVES if shown else None,
        }

    def requests(self, caller: Caller, after: int = 0) -> dict[str, Any]:
        """What changed after the change of that number."""
        cursor = self._recorder.latest
        records = [record for record in self._recorder.records(caller.owner) if record.version > after]
        return {
            "cursor": cursor,
            "requests": [summary(record) for record in sorted(records, key=lambda one: -one.number)],
            "gone": self._recorder.gone_after(caller.owner, after) if after else [],
        }

    def find_causes(self, caller: Caller) -> None:
        """Works out a few causes that nobody has looked at yet, newest first; each is a change of its request."""
        waiting = [one for one in self._recorder.records(caller.owner) if "cause" not in one.facts and one.state.is_final]
        for record in waiting[::-1][:_CAUSES_A_LOOK]:
            try:
                self._note_facts(record, caller)
            except InspectProblem:
                raise  # the model is not there yet: later
            except Exception:  # noqa: BLE001  one that cannot be explained hides no other; the log has it
                _log.exception("request=%s has no cause that could be found", record.request_id)
                record.note("cause", None)

    def _note_facts(self, record: Record, caller: Caller) -> None:
        cause = None
        if record.request is not None and record.report is not None:
            view = self._view(record)
            found = self._prefix(view, caller).cause
            cause = found["name"] if found is not None else None
            record.facts["reasoning_tokens"] = sum(
                one.tokens[1] - one.tokens[0] for one in view.answer.parts if type(one.part).__name__ == "Reasoning"
            )
        record.note("cause", cause)

    # ---- one request ------------------------------------------------------------------------------------------------

    def request(self, caller: Caller, request_id: str) -> dict[str, Any]:
        record = self._record(caller, request_id)
        view = self._view(record) if record.request is not None else None
        has_prompt = view is not None
        prompt_utf16 = view.axis.utf16(view.axis.bytes_of((0, view.axis.num_prompt)))[1] if view is not None else 0
        return {
            "summary": summary(record),
            "axis": {
                "prompt": view.axis.num_prompt if view is not None else 0,
                "output": view.axis.num_output if view is not None else 0,
            },
            "text_utf16": view.axis.num_utf16 if view is not None else 0,
            "prompt_utf16": prompt_utf16,
            "panels": {
                "wire": bool(record.arrival.path),
                "conversation": has_prompt,
                "segments": has_prompt,
                "tokens": has_prompt,
                "context": record.report is not None,
                "prefix": has_prompt,
                "decode": bool(record.ids),
            },
        }

    def wire(self, caller: Caller, request_id: str, start: int = 0, end: int | None = None) -> dict[str, Any]:
        record = self._record(caller, request_id)
        view = self._view(record) if record.request is not None else None
        return wire(record, view, max(0, start), end)

    def conversation(self, caller: Caller, request_id: str) -> dict[str, Any]:
        return conversation(self._needed_view(caller, request_id))

    def segments(self, caller: Caller, request_id: str) -> dict[str, Any]:
        view = self._needed_view(caller, request_id)
        return segments(view, view.dialect)

    def tokens(self, caller: Caller, request_id: str, start: int = 0, end: int | None = None) -> dict[str, Any]:
        return tokens(self._needed_view(caller, request_id), start, end)

    def context(self, caller: Caller, request_id: str) -> dict[str, Any]:
        view, loaded = self._needed_view(caller, request_id), self._loaded()
        return context(view, loaded.cache, cache_namespace(view.request), loaded.model.context_length)

    def prefix(
        self, caller: Caller, request_id: str, price_input: float | None = None, price_cached: float | None = None
    ) -> dict[str, Any]:
        view = self._needed_view(caller, request_id)
        prices = Prices(
            self._prices.input if price_input is None else price_input,
            self._prices.cached if price_cached is None else price_cached,
            self._prices.currency,
        )
        found = self._prefix(view, caller).shown(prices)
        if "cause" not in view.record.facts and view.record.state.is_final:
            self._note_facts(view.record, caller)
        return found

    def decode(self, caller: Caller, request_id: str, start: int = 0, end: int | None = None) -> dict[str, Any]:
        view, loaded = self._needed_view(caller, request_id), self._loaded()
        drafter = loaded.drafters.name if loaded.drafters is not None else None
        return decode_panel.decode(view, self._held(view, loaded), drafter, start, end)

    def _held(self, view: View, loaded: Loaded) -> list[Held]:
        if loaded.script is not None:
            return []
        if view.held is None:
            fence = self._engine.fence_of(view.request, view.record.starts_in_reasoning)
            view.held = decode_panel.walk(fence, view.output_ids)
        return view.held

    # ---- cache ------------------------------------------------------------------------------------------------------

    def cache(self, caller: Caller) -> dict[str, Any]:
        loaded = self._loaded()
        uses: dict[str, Use] = {}
        for record in self._recorder.records(caller.owner):
            at_ms = record.received_at_ms + 1000 * ((record.ended_at or record.received) - record.received)
            if record.kept_cache_id is not None:
                uses[record.kept_cache_id] = Use(record.request_id, at_ms)
            if record.hit_cache_id is not None:
                maker = uses.get(record.hit_cache_id)
                uses[record.hit_cache_id] = Use(maker.request_id if maker is not None else None, at_ms)
        return cache_contents.tree(
            loaded.cache,
            loaded.vocabulary,
            lambda namespace: belongs_to(namespace, caller.namespace),
            uses,
            caller.namespace,
            shows_text=caller.is_alone,
        )

    def gauge(self, caller: Caller) -> dict[str, Any]:
        return cache_contents.gauge(self._loaded().cache)

    def kv(self, num_tokens: int) -> dict[str, Any]:
        loaded = self._loaded_or_none()
        wanted = min(max(0, num_tokens), _MOST_KV_TOKENS)
        return kv_figures(wanted, loaded.card.id if loaded is not None else None, loaded.model if loaded is not None else None)

    # ---- finding things ---------------------------------------------------------------------------------------------

    def _prefix(self, view: View, caller: Caller) -> PrefixBreak:
        return PrefixBreak(
            view,
            self._loaded(),
            self._recorder.records(caller.owner),
            lambda namespace: belongs_to(namespace, caller.namespace),
            self._view,
            shows_states=caller.is_alone,
        )

    def _record(self, caller: Caller, request_id: str) -> Record:
        record = self._recorder.get(request_id.removeprefix("req_"))
        if record is None or record.owner != caller.owner:
            raise not_found(f"request {request_id[:80]}")
        return record

    def _needed_view(self, caller: Caller, request_id: str) -> View:
        record = self._record(caller, request_id)
        if record.request is None:
            raise not_found(f"the prompt of request {request_id[:80]}")
        return self._view(record)

    def _view(self, record: Record) -> View:
        """Made once for a record as it stands; the last few stay."""
        loaded, request = self._loaded(), record.request
        segments = record.segments
        if request is None or record.request is None:  # asked again: it may have been dropped before its segments were read
            raise not_found(f"the prompt of request {record.request_id}")
        key = (record.request_id, len(record.ids), record.state.value)
        with self._lock:
            found = self._views.get(key)
            if found is not None:
                self._views.move_to_end(key)
                return found
        reader = self._engine.reader(request, record.starts_in_reasoning)
        stop_ids = frozenset() if request.ignore_eos else frozenset(loaded.dialect.stop_ids)
        view = View(record, request, segments, loaded.vocabulary, reader, stop_ids, loaded.dialect.name)
        with self._lock:
            self._views[key] = view
            while len(self._views) > _MOST_VIEWS:
                self._views.popitem(last=False)
        return view

    def _loaded_or_none(self) -> Loaded | None:
        try:
            return self._engine.loaded
        except ApiError:
            return None

    def _loaded(self) -> Loaded:
        loaded = self._loaded_or_none()
        if loaded is None:
            raise InspectProblem(503, "not_ready", "the model is still loading")
        return loaded
