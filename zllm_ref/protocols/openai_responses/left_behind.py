"""The end of a response whose process was killed: what was kept of its events is closed, and says that it failed.

kept      created queued in_progress item.added part.added delta delta ▌
closing   text.done part.done item.done(incomplete) failed              numbered on, so that a reader can take it up anywhere
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zllm_ref.canonical.error import ApiError
from zllm_ref.protocols.openai_responses.error import render_failure
from zllm_ref.protocols.openai_responses.open_item import CUSTOM, FUNCTION, GROWTHS, Growth
from zllm_ref.protocols.openai_responses.response import TERMINAL
from zllm_ref.protocols.sse import Frame, dump

_BY_DELTA = {growth.delta_event: growth for growth in GROWTHS}
_BY_DONE = {growth.done_event: growth for growth in GROWTHS}
_BY_PART = {growth.part: growth for growth in GROWTHS if growth.part}
_BY_CALL = {"function_call": FUNCTION, "custom_tool_call": CUSTOM}
_PART_ADDED = {growth.part_events[0] for growth in GROWTHS if growth.part}
_PART_DONE = {growth.part_events[1]: growth for growth in GROWTHS if growth.part}


@dataclass(slots=True)
class _Open:
    """The item that was being written. `growth` None: no part of it is open."""

    index: int
    item: dict[str, Any]
    growth: Growth | None = None
    is_text_done: bool = False
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    @property
    def parts(self) -> list[Any]:
        found: list[Any] = self.item.setdefault("content" if self.growth is None else self.growth.index_field[:-6], [])
        return found


class LeftBehind:
    """Reads the kept events in order; `closing` gives those that are missing."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._number = 0
        self._output: list[Any] = []
        self._open: _Open | None = None
        self.terminal: Frame | None = None
        for frame in frames:
            if not frame.is_done:
                self._see(frame)

    def _see(self, frame: Frame) -> None:
        payload = frame.payload
        name = payload["type"]
        self._number = payload["sequence_number"] + 1
        if name in TERMINAL:
            self.terminal = frame
        elif name == "response.output_item.added":
            self._open = _Open(payload["output_index"], payload["item"], _BY_CALL.get(payload["item"]["type"]))
        elif name == "response.output_item.done":
            self._output.append(payload["item"])
            self._open = None
        elif self._open is not None:
            self._see_growth(self._open, name, payload)

    @staticmethod
    def _see_growth(item: _Open, name: str, payload: dict[str, Any]) -> None:
        if name in _PART_ADDED:
            item.growth = _BY_PART[payload["part"]["type"]]
            item.pieces, item.logprobs, item.is_text_done = [], [], False
        elif name in _BY_DELTA:
            item.pieces.append(payload["delta"])
            item.logprobs += payload.get("logprobs", ())
        elif name in _BY_DONE:
            item.is_text_done = True
        elif name in _PART_DONE:
            item.parts.append(payload["part"])
            item.growth = None

    def closing(self, body: str, error: ApiError) -> tuple[list[Frame], str]:
        """The missing events, and the response object that the last one carries. `body`: the object as it was kept."""
        frames = [] if self._open is None else self._closed(self._open)
        response = json.loads(body) | {"status": "failed", "error": json.loads(render_failure(error)), "output": self._output}
        return [*frames, self._frame("response.failed", {"response": response})], dump(response)

    def _closed(self, item: _Open) -> list[Frame]:
        frames = []
        growth = item.growth
        if growth is not None:
            text = "".join(item.pieces)
            place = {"item_id": item.item["id"], "output_index": item.index}
            if growth.part:
                place[growth.index_field] = len(item.parts)
            if not item.is_text_done:
                more: dict[str, Any] = {"logprobs": item.logprobs} if growth.has_logprobs else {}
                if not growth.part:
                    more["name"] = item.item["name"]
                frames.append(self._frame(growth.done_event, {**place, growth.text_field: text, **more}))
            if growth.part:
                part: dict[str, Any] = {"type": growth.part, growth.text_field: text}
                if growth.has_logprobs:
                    part |= {"annotations": [], "logprobs": item.logprobs}
                frames.append(self._frame(growth.part_events[1], {**place, "part": part}))
                item.parts.append(part)
            else:
                item.item[growth.text_field] = text
        if "status" in item.item:
            item.item["status"] = "incomplete"
        self._output.append(item.item)
        return [*frames, self._frame("response.output_item.done", {"output_index": item.index, "item": item.item})]

    def _frame(self, name: str, fields: dict[str, Any]) -> Frame:
        number = self._number
        self._number += 1
        return Frame(dump({"type": name, "sequence_number": number, **fields}), name)
