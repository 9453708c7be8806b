# ruff: noqa: E501  (tables: a row is a line)
"""Faults in Chat Completions streams."""

from __future__ import annotations

import copy
from typing import Any

from conformance.golden.story import Frame
from conformance.mutants.faults import DELETE, Edit, Fault, Frames, payloads


def _chunks(frames: Frames) -> list[dict[str, Any]]:
    return [data for data in payloads(frames) if data.get("choices")]


def _each(path: str, value: Any, first: int = 0, last: int | None = None) -> Edit:
    """Sets a field of the choice (`delta.role`) in the chunks first..last."""

    def edit(frames: Frames) -> None:
        for number, chunk in enumerate(_chunks(frames)[first:last]):
            target: Any = chunk["choices"][0]
            *front, key = path.split(".")
            for step in front:
                target = target[step]
            if value is DELETE:
                target.pop(key, None)
            else:
                target[key] = value(number) if callable(value) else value

    return edit


def _top(key: str, value: Any, first: int = 0, last: int | None = None) -> Edit:
    def edit(frames: Frames) -> None:
        for number, chunk in enumerate(payloads(frames)[first:last]):
            if value is DELETE:
                chunk.pop(key, None)
            else:
                chunk[key] = value(number) if callable(value) else value

    return edit


def _fragments(change: Any, first_too: bool = False) -> Edit:
    """Calls change(fragment, opening of its call) for every later fragment."""

    def edit(frames: Frames) -> None:
        openings: dict[int, dict[str, Any]] = {}
        for chunk in _chunks(frames):
            for fragment in chunk["choices"][0]["delta"].get("tool_calls") or ():
                if fragment["index"] not in openings:
                    openings[fragment["index"]] = copy.deepcopy(fragment)
                    if not first_too:
                        continue
                change(fragment, openings[fragment["index"]])

    return edit


def _finish_at(frames: Frames) -> int:
    return next(
        place for place, frame in enumerate(frames)
        if isinstance(frame.data, dict) and frame.data.get("choices") and frame.data["choices"][0]["finish_reason"]
    )  # fmt: skip


def _usage(frames: Frames) -> dict[str, Any]:
    return next(data for data in payloads(frames) if data.get("usage"))


def _double_finish(frames: Frames) -> None:
    place = _finish_at(frames)
    frames.insert(place + 1, copy.deepcopy(frames[place]))


def _speak_after_finish(frames: Frames) -> None:
    place = _finish_at(frames)
    late = copy.deepcopy(frames[place - 1])
    frames.insert(place + 1, late)


def _drop_usage(frames: Frames) -> None:
    frames[:] = [frame for frame in frames if not (isinstance(frame.data, dict) and frame.data.get("usage"))]


def _usage_with_choices(frames: Frames) -> None:
    _usage(frames)["choices"] = [{"index": 0, "delta": {}, "finish_reason": None}]


def _cumulative(frames: Frames) -> None:
    so_far = ""
    for chunk in _chunks(frames):
        delta = chunk["choices"][0]["delta"]
        if delta.get("content"):
            so_far += delta["content"]
            delta["content"] = so_far


def _after_done(frames: Frames) -> None:
    frames.append(copy.deepcopy(frames[1]))


def _set_usage(**values: Any) -> Edit:
    def edit(frames: Frames) -> None:
        for path, value in values.items():
            target: Any = _usage(frames)["usage"]
            *front, key = path.split("__")
            for step in front:
                target = target[step]
            target[key] = value

    return edit


def _same_index(fragment: dict[str, Any], opening: dict[str, Any]) -> None:
    fragment["index"] = 0


def _lose_last_fragment(frames: Frames) -> None:
    places = [
        place
        for place, frame in enumerate(frames)
        if isinstance(frame.data, dict) and '"arguments"' in str(frame.data).replace("'", '"')
    ]
    del frames[places[-1]]


def _running_index(frames: Frames) -> None:
    number = 0
    for chunk in _chunks(frames):
        for fragment in chunk["choices"][0]["delta"].get("tool_calls") or ():
            fragment["index"] = number
            number += 1


def _call_as_text(frames: Frames) -> None:
    for chunk in _chunks(frames):
        delta = chunk["choices"][0]["delta"]
        if delta.pop("tool_calls", None):
            delta["content"] = '<tool_call>{"name": "get_weather"}'


def _back_to_first(frames: Frames) -> None:
    """The last fragment of the first call comes after the second has opened."""
    places = [
        place
        for place, frame in enumerate(frames)
        if isinstance(frame.data, dict) and "tool_calls" in str(frame.data.get("choices"))
    ]
    frame = frames.pop(places[3])
    frames.insert(places[4], frame)


def _same_ids(frames: Frames) -> None:
    for chunk in _chunks(frames):
        for fragment in chunk["choices"][0]["delta"].get("tool_calls") or ():
            if "id" in fragment:
                fragment["id"] = "call_same"


def _insert(frame: Frame, place: int) -> Edit:
    def edit(frames: Frames) -> None:
        frames.insert(place, frame)

    return edit


def _error_then_finish(frames: Frames) -> None:
    frames.insert(3, Frame(None, {"error": {"message": "m", "type": "server_error", "param": None, "code": None}}))


def _reasoning_late(frames: Frames) -> None:
    texts = [place for place, frame in enumerate(frames) if "reasoning_content" in str(frame.data)]
    frame = frames.pop(texts[-1])
    frames.insert(_finish_at(frames), frame)


def _without(place: int) -> Edit:
    def edit(frames: Frames) -> None:
        del frames[place]

    return edit


_ERROR = {"error": {"message": "m", "type": "server_error", "param": None, "code": None}}


def _chat(number: str, what: str, rules: str, edit: Edit, base: str = "text", **more: Any) -> Fault:
    return Fault(number, what, "chat", base, tuple(rules.split()), edit, **more)


FAULTS = [
    _chat("C01", "id differs in each chunk", "CH1", _top("id", lambda number: f"chatcmpl-{number}")),
    _chat("C02", "created differs in each chunk", "CH2", _top("created", lambda number: 1764457200 + number)),
    _chat("C03", "model differs in each chunk", "CH3", _top("model", lambda number: f"m{number}")),
    _chat("C04", "role in each delta", "CH5", _each("delta.role", "assistant")),
    _chat("C05", "object is chat.completion", "CH4", _top("object", "chat.completion")),
    _chat("C06", "no chunk with a finish_reason", "CH6", _each("finish_reason", None)),
    _chat("C07", 'finish_reason "" until the end', "CH7", _each("finish_reason", "", 0, -1)),
    _chat("C08", "two finish chunks", "CH6", _double_finish),
    _chat("C09", "content after the finish chunk", "CH6 CH9", _speak_after_finish),
    _chat("C10", "no [DONE]", "T4", _without(-1)),
    _chat("C11", "usage was asked for and never comes", "CH17", _drop_usage),
    _chat("C12", "the usage chunk has a choice", "CH17", _usage_with_choices),
    _chat("C13", "total is not prompt + completion", "CH18", _set_usage(total_tokens=99)),
    _chat("C14", "each chunk repeats the text so far", "CH9 X1", _cumulative),
    _chat("C15", "the only choice has index 1", "CH8", _each("index", 1)),
    _chat("C16", "a frame after [DONE]", "T5", _after_done),
    _chat("C17", "finish_reason eos", "CH7", _each("finish_reason", "eos", -1)),
    _chat("C18", "cached exceeds the prompt", "CH18", _set_usage(prompt_tokens_details__cached_tokens=99)),
    _chat("C19", "a character broken into U+FFFD", "T3", _each("delta.content", "w\ufffd", 3, 4)),
    _chat("C20", "a special token leaks", "CH20 X1", _each("delta.content", " more.<|im_end|>", 5, 6)),
    _chat("C21", "id on every fragment", "CH12", _fragments(lambda fragment, opening: fragment.update(id=opening["id"])), "tools"),
    _chat("C22", "name on every fragment", "CH12", _fragments(lambda fragment, opening: fragment["function"].update(name=opening["function"]["name"])), "tools"),
    _chat("C23", "tool calls without index", "CH10", _fragments(lambda fragment, opening: fragment.pop("index"), True), "tools"),
    _chat("C24", "the second call reuses index 0", "CH12 CH14", _fragments(_same_index, True), "tools"),
    _chat("C25", "arguments as an object", "CH14", _fragments(lambda fragment, opening: fragment["function"].update(arguments={"a": 1})), "tools"),
    _chat("C26", "finish_reason stop after calls", "CH15", _each("finish_reason", "stop", -1), "tools"),
    _chat("C27", "the last fragment is lost", "CH14", _lose_last_fragment, "tools"),
    _chat("C28", "the first fragment has no id", "CH11", _fragments(lambda fragment, opening: fragment.pop("id", None), True), "tools"),
    _chat("C29", "each fragment has an index of its own", "CH11 CH14", _running_index, "tools"),
    _chat("C30", "the call leaks as text", "CH16 CH15 X1", _call_as_text, "tools"),
    _chat("C31", "back to the first call", "CH13", _back_to_first, "tools"),
    _chat("C32", "two calls share an id", "CH11", _same_ids, "tools"),
    _chat("C33", "an event: line on each frame", "T8", lambda frames: frames.__setitem__(slice(None), [Frame("message", frame.data) for frame in frames])),
    _chat("C34", "the error comes with status 200, first", "T6", lambda frames: frames.__setitem__(slice(None), [Frame(None, _ERROR)])),
    _chat("C35", "a finish after an error", "CH25", _error_then_finish),
    _chat("C36", "reasoning after content", "CH22", _reasoning_late, "think"),
    _chat("C37", "error without a message", "CH25", lambda frames: frames.__setitem__(slice(2, None), [Frame(None, {"error": {"code": 1}})])),
    _chat("C38", "logprobs is a list", "CH21", _each("logprobs", [], 1, 2)),
    _chat("C39", "the frame is no JSON", "T2", _insert(Frame(None, '{"id": '), 2)),
    _chat("C40", "negative counts", "CH18", _set_usage(completion_tokens=-9, total_tokens=12)),
    _chat("C41", "an empty choices list without usage in the middle", "CH17", _insert(Frame(None, {"id": "chatcmpl-base", "object": "chat.completion.chunk", "created": 1764457200, "model": "golden-1", "choices": [], "usage": None}), 2)),
    _chat("C42", "the second choice never finishes", "CH6 CH8", lambda frames: frames.insert(2, Frame(None, {"id": "chatcmpl-base", "object": "chat.completion.chunk", "created": 1764457200, "model": "golden-1", "choices": [{"index": 1, "delta": {"role": "assistant"}, "finish_reason": None}]}))),
    _chat("C43", "two [DONE]", "T4", lambda frames: frames.append(Frame(None, "[DONE]"))),
    _chat("C44", "an id that is null on later fragments", "CH12", _fragments(lambda fragment, opening: fragment.update(id=None)), "tools"),
    _chat("C45", "a piece is lost", "X1", _without(2), needs_unary=True),
]  # fmt: skip
