"""Every event dropped, repeated, swapped with its successor, cut after; every field renamed and retyped."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance.golden.case import Case
from conformance.golden.story import Frame
from conformance.grammar import load_grammar


@dataclass(frozen=True, slots=True)
class Mutant:
    """`kind` is the event's kind, `path` the field's (empty for faults of whole events)."""

    operator: str
    kind: str
    path: str
    event: int
    frames: list[Frame]


def mutants_of(case: Case, fields: bool = True) -> Iterator[Mutant]:
    """All single faults of one golden, lazily; those that leave the bytes as they were are left out."""
    frames = list(case.frames)
    for place, frame in enumerate(frames):
        if frame.is_comment:
            continue
        kind = kind_of_frame(case.protocol, frame)
        yield Mutant("drop", kind, "", place + 1, frames[:place] + frames[place + 1 :])
        yield Mutant("repeat", kind, "", place + 1, [*frames[: place + 1], *frames[place:]])
        if place + 1 < len(frames):
            if frames[place + 1] != frame and not frames[place + 1].is_comment:
                swapped = [*frames[:place], frames[place + 1], frame, *frames[place + 2 :]]
                yield Mutant("swap", kind, "", place + 1, swapped)
            yield Mutant("cut", kind, "", place + 1, frames[: place + 1])
        if fields and isinstance(frame.data, dict):
            yield from _field_mutants(frames, place, frame, kind)


def _field_mutants(frames: list[Frame], place: int, frame: Frame, kind: str) -> Iterator[Mutant]:
    assert isinstance(frame.data, dict)
    for path in _paths(frame.data):
        for operator in ("rename", "retype"):
            data = copy.deepcopy(frame.data)
            target: Any = data
            for key in path[:-1]:
                target = target[key]
            last = path[-1]
            if operator == "retype":
                target[last] = _other_type(target[last])
            elif isinstance(target, list):
                continue
            else:
                target[f"{last}_x"] = target.pop(last)
            mutated = [*frames[:place], Frame(frame.event, data), *frames[place + 1 :]]
            yield Mutant(operator, kind, ".".join("*" if isinstance(key, int) else key for key in path), place + 1, mutated)


def _paths(value: Any, front: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*front, key)
        yield from _paths(inner, (*front, key))


def _other_type(value: Any) -> Any:
    """A value of a type that no rule would take for the same: text becomes a number, all else a text."""
    return 7 if isinstance(value, str) else json.dumps(value) + "!"


def kind_of_frame(protocol: str, frame: Frame) -> str:
    """The kind of a frame as faults name it: the grammar's, and for a chunk what it carries."""
    if not isinstance(frame.data, dict):
        return "[DONE]"
    kind = str(load_grammar(protocol).kind_of(frame.data))
    if kind != "chunk":
        return kind
    return _kind_of_chunk(frame.data)


def _kind_of_chunk(data: dict[str, Any]) -> str:
    """Chunks are told apart by what they carry: role, content, reasoning, refusal, tool, finish, usage, moderation."""
    if not data["choices"]:
        return "usage" if data.get("usage") else "moderation"
    choice = data["choices"][0]
    delta = choice["delta"]
    names = ("role", "content", "reasoning_content", "reasoning", "refusal", "tool_calls")
    carried = [name for name in names if delta.get(name) or (name == "role" and name in delta)]
    return "+".join([*carried, *(["finish"] if choice["finish_reason"] else [])]) or "empty"
