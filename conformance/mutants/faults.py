"""One hundred and some single faults, each on a right stream: what was done, and which rules must tell it.

The first hundred follow public defect reports and their neighbours (C01-C30 Chat, R01-R38 Responses, A01-A32 Messages);
the others reach the rules that those leave untouched. A fault edits the frames of the base story in place.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from conformance.golden import render_chat, render_messages, render_responses
from conformance.golden.story import Call, Frame, Reasoning, Story, Text

Frames: TypeAlias = list[Frame]
Edit: TypeAlias = Callable[[Frames], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`base` names the story: text, tools, think. `needs_unary`: only the unary answer gives it away."""

    id: str
    what: str
    protocol: str
    base: str
    rules: tuple[str, ...]
    edit: Edit
    needs_unary: bool = False
    profile: str = "default"
    edit_unary: Callable[[dict[str, Any]], None] | None = None


def base_stories(protocol: str) -> dict[str, Story]:
    """The right streams that faults are planted in."""
    options = {"usage": True} if protocol == "chat" else {}
    text = Text(("Hel", "lo ", "wör", "ld", " and more."))
    calls = (Call("get_weather", ('{"loc', 'ation":', ' "Paris"}')), Call("get_weather", ('{"location":', ' "Rome"}')))
    thought = Reasoning(("Let me", " think."))
    common: dict[str, Any] = {"prompt_tokens": 21, "cached_tokens": 4, "options": options}
    return {
        "text": Story((text,), scope="base", **common),
        "tools": Story(calls, scope="base", completion_tokens=30, **common),
        "think": Story((thought, text), scope="base", completion_tokens=30, reasoning_tokens=5, **common),
    }


def render(protocol: str, story: Story) -> tuple[Frames, dict[str, Any]]:
    """The right stream and the right unary answer."""
    renderer = {"chat": render_chat, "responses": render_responses, "messages": render_messages}[protocol]
    frames = [Frame(frame.event, json.loads(json.dumps(frame.data)), frame.is_comment) for frame in renderer.render_stream(story)]
    return frames, renderer.render_unary(story)


def all_faults() -> list[Fault]:
    from conformance.mutants import faults_chat, faults_messages, faults_responses

    return [*faults_chat.FAULTS, *faults_responses.FAULTS, *faults_messages.FAULTS]


# What the tables of faults are written with.


def payloads(frames: Frames, kind: str | None = None) -> list[dict[str, Any]]:
    """The JSON objects of the stream, of one kind or all."""
    found = [frame.data for frame in frames if isinstance(frame.data, dict)]
    return [data for data in found if kind is None or data.get("type") == kind]


def position(frames: Frames, kind: str, number: int = 0) -> int:
    """Where the nth frame of a kind stands (the last one for -1)."""
    places = [place for place, frame in enumerate(frames) if isinstance(frame.data, dict) and frame.data.get("type") == kind]
    return places[number]


def drop(kind: str) -> Edit:
    """Takes every frame of a kind out."""

    def edit(frames: Frames) -> None:
        frames[:] = [frame for frame in frames if not (isinstance(frame.data, dict) and frame.data.get("type") == kind)]

    return edit


def put(kind: str | None, path: str, value: Any, number: int | None = None) -> Edit:
    """Sets a field in every frame of a kind, or in the nth."""

    def edit(frames: Frames) -> None:
        found = payloads(frames, kind)
        for data in found if number is None else [found[number]]:
            set_path(data, path, value)

    return edit


def move(kind: str, to_kind: str, number: int = 0, after: bool = True) -> Edit:
    """Moves the nth frame of a kind behind (or before) the first of another."""

    def edit(frames: Frames) -> None:
        frame = frames.pop(position(frames, kind, number))
        frames.insert(position(frames, to_kind, -1) + after, frame)

    return edit


def repeat(kind: str, number: int = 0) -> Edit:
    """Sends the nth frame of a kind twice."""

    def edit(frames: Frames) -> None:
        place = position(frames, kind, number)
        frames.insert(place + 1, copy.deepcopy(frames[place]))

    return edit


def rename_lines(name: str | None) -> Edit:
    """Gives every frame the same `event:` line, or none."""

    def edit(frames: Frames) -> None:
        frames[:] = [Frame(name, frame.data, frame.is_comment) for frame in frames]

    return edit


def renumber(frames: Frames) -> None:
    """Gives the events of a Responses stream their right numbers again, so that only the planted fault is left."""
    for number, data in enumerate(payloads(frames)):
        data["sequence_number"] = number


def both(*edits: Edit) -> Edit:
    """Several edits that make one fault."""

    def edit(frames: Frames) -> None:
        for one in edits:
            one(frames)

    return edit


def set_path(data: dict[str, Any], path: str, value: Any) -> None:
    """`a.0.b` = value; a callable value is called with the old one; DELETE takes the key out."""
    *front, last = path.split(".")
    target: Any = data
    for key in front:
        target = target[int(key)] if isinstance(target, list) else target.get(key)
        if target is None:
            return
    if isinstance(target, list):
        target[int(last)] = value(target[int(last)]) if callable(value) else value
    elif value is DELETE:
        target.pop(last, None)
    else:
        target[last] = value(target.get(last)) if callable(value) else value


DELETE = object()
