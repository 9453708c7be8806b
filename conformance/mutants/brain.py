"""What the small right server thinks: requests of three protocols in, a story out. Words are its tokens.

Everything is counted by words, so that prompts, caches and continuations can be told exactly, and greedy answers never change.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.golden.story import Call, Part, Reasoning, Story, Text

_WORD: Final = re.compile(r"\s*\S+|\s+$")
FAIL: Final = re.compile(r"Fail after (\d+) tokens\.")
STALL: Final = re.compile(r"Stall for ([\d.]+) seconds after (\d+) tokens\.")
_NUMBERS: Final = [f"number-{number} " for number in range(1, 101)]
_CITIES: Final = ("Paris", "Rome", "Oslo")
CONTEXT_LENGTH: Final = 200_000


class BadRequestError(Exception):
    """The caller's fault: status, OpenAI's code and param."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = "invalid_value") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code


@dataclass
class Request:
    """A request in no protocol's words. `turns` are (role, text) in order; calls and results are text too."""

    protocol: str
    turns: list[tuple[str, str]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    tool_choice: str = "auto"
    is_parallel: bool = True
    max_tokens: int = 4096
    stops: list[str] = field(default_factory=list)
    schema: dict[str, Any] | None = None
    thinks: bool = False
    num_choices: int = 1
    logprobs: bool = False

    def words(self) -> list[str]:
        """The prompt as the model sees it."""
        words: list[str] = []
        if self.tools:
            words += ["<tools>", *split(json.dumps(self.tools, sort_keys=True))]
        for role, text in self.turns:
            words += [f"<{role}>", *split(text)]
        return [*words, "<assistant>"]


def split(text: str) -> list[str]:
    return _WORD.findall(text)


def think(request: Request) -> tuple[list[Part], str, list[str]]:
    """The parts of the answer, how it ends, and its words as they come back in the next prompt."""
    role, last = request.turns[-1]
    parts: list[Part] = []
    if request.thinks:
        parts.append(Reasoning(("I", " think", " so."), is_encrypted=request.protocol == "responses"))
    offered = [tool for tool in request.tools if tool["type"] in ("function", "custom")]
    wants = request.tool_choice not in ("auto", "none") or (
        request.tool_choice == "auto" and "the tool" in last and role == "user"
    )
    if offered and wants and request.tool_choice != "none":
        return _call(request, parts, offered, last)
    text = _text(request, role, last)
    words = split(text)
    end = "stop"
    if failure := FAIL.fullmatch(last):
        if int(failure[1]) == 0:
            raise BadRequestError(500, "the engine failed", None, "engine_error")
        return [*parts, Text(tuple(words[: int(failure[1])]))], "error", words[: int(failure[1])]
    for stop in request.stops:
        place = text.find(stop)
        if place >= 0:
            text, end = text[:place], f"stop_string:{stop}"
            words = split(text)
    if len(words) > request.max_tokens:
        words, end = words[: request.max_tokens], "length"
    parts += [Text(tuple(words), choice=choice) for choice in range(request.num_choices)]
    return parts, end, words


def _call(request: Request, parts: list[Part], offered: list[dict[str, Any]], last: str) -> tuple[list[Part], str, list[str]]:
    names = [tool for tool in offered if tool["name"] == request.tool_choice] or offered[:1]
    count = 2 if "twice" in last and request.is_parallel else 1
    words: list[str] = []
    for number in range(count):
        tool = names[0]
        if tool["type"] == "custom":
            pieces: tuple[str, ...] = ("*** Begin", " Patch")
        else:
            required = (tool["schema"] or {}).get("required", [])
            arguments = json.dumps(dict.fromkeys(required, _CITIES[number]))
            pieces = tuple(arguments[start : start + 6] for start in range(0, len(arguments), 6))
        kind = "custom" if tool["type"] == "custom" else "function"
        parts.append(Call(tool["name"], pieces, kind=kind, namespace=tool.get("namespace")))
        words += split(told_call(tool["name"], "".join(pieces)))
    return parts, "stop", words


def told_call(name: str, arguments: str) -> str:
    """A call as it stands in a prompt."""
    return f" call {name} {arguments}"


def _text(request: Request, role: str, last: str) -> str:
    if request.schema is not None:
        return json.dumps({"city": "Paris", "rainy": False})
    if last.startswith("Repeat exactly: "):
        return last.removeprefix("Repeat exactly: ")
    if last.startswith("Count"):
        return "".join(_NUMBERS)
    if role == "tool":
        return f"The tool says {last}."
    return "Hello from a small and right server."


class Cache:
    """Prompts and answers seen so far; a prompt is cached as far as the longest of them reaches, its last word never."""

    def __init__(self) -> None:
        self._seen: list[list[str]] = []

    def look_up(self, words: list[str]) -> int:
        return min(max((_common(words, seen) for seen in self._seen), default=0), len(words) - 1)

    def keep(self, words: list[str]) -> None:
        self._seen = [*self._seen[-63:], words]


def story_of(request: Request, cache: Cache, scope: str, model: str) -> Story:
    """The answer, counted."""
    prompt = request.words()
    if len(prompt) > CONTEXT_LENGTH:
        raise BadRequestError(400, f"{len(prompt)} words do not fit into {CONTEXT_LENGTH}", None, "context_length_exceeded")
    cached = cache.look_up(prompt)
    parts, end, words = think(request)
    cache.keep([*prompt, *words])
    stall = STALL.fullmatch(request.turns[-1][1])
    return Story(
        tuple(parts),
        end=end.partition(":")[0],
        prompt_tokens=len(prompt),
        cached_tokens=cached,
        completion_tokens=max(1, len(words)) * request.num_choices + (3 if request.thinks else 0),
        reasoning_tokens=3 if request.thinks else 0,
        model=model,
        scope=scope,
        options={
            "stall": float(stall[1]) if stall else 0.0,
            "stall_after": int(stall[2]) if stall else 0,
            "num_choices": request.num_choices,
            "logprobs": request.logprobs,
            "stop": end.partition(":")[2],
        },
    )


def _common(one: list[str], other: list[str]) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
