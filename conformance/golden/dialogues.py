"""The conversations behind the exchange goldens of a WebSocket: what a client says, and when.

A step is what is said at once; then come as many ends (terminal events, errors, answers to steering) as it names, or silence.
In a message `LAST` stands for the id of the last response, `CALL` for the call_id of its first call, `FIRST` for the id of the
first response on the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from conformance.checker.dialogue import PING, TIME, WEATHER, Ask, User, ask
from conformance.golden.exchanges import wanted_for

LAST: Final = "$last"
FIRST: Final = "$first"
CALL: Final = "$call"
_USE: Final = "Use the tool."
_FEATURES: Final = ("text/plain", "text/scripts", "text/emoji", "text/separators", "text/like-json", "text/like-markers")
_TOOLS: Final = (
    "tools/required",
    "tools/named",
    "tools/none",
    "tools/nested",
    "tools/unicode",
    "tools/parallel",
    "tools/no-arguments",
)
_OTHERS: Final = (
    "end/one-token",
    "end/twenty-tokens",
    "form/input-string",
    "form/metadata",
    "form/developer",
    "usage/repeat-first",
)


@dataclass(frozen=True, slots=True)
class Step:
    """`num_ends` None: wait until the server has been silent for a moment."""

    messages: tuple[dict[str, Any], ...]
    num_ends: int | None = 1


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One connection."""

    id: str
    title: str
    rules: tuple[str, ...]
    steps: tuple[Step, ...]


def dialogues() -> Iterator[Dialogue]:
    """All of them."""
    rows = {row.id: row for row in wanted_for("responses")}
    for name in (*_FEATURES, *_TOOLS, *_OTHERS):
        body = rows[name].asked.body("responses", LAST, True)
        yield Dialogue(name, rows[name].title, ("WS3", *rows[name].rules), (Step((_message(body),)),))
    yield from _turns()
    yield from _chains()
    yield from _lanes()
    yield from _steering()
    yield from _errors()


def _turns() -> Iterator[Dialogue]:
    yield _dialogue("turns/two", "two turns in series", "WS4 WS5", say("Hello"), say("Bye"))
    yield _dialogue("turns/whole", "up to the natural end", "WS4 RS2", say("Hello", max_tokens=200))
    yield _dialogue("turns/three", "three turns in series", "WS4 WS5", say("One"), say("Two"), say("Three"))
    ahead = Step((*say("One").messages, *say("Two").messages), 2)
    yield _dialogue("turns/asked-ahead", "two requests at once are served in series", "WS5", ahead)
    yield _dialogue(
        "turns/text-then-call",
        "text, then a call",
        "WS4 RS9",
        say("Hello"),
        say(_USE, tools=(WEATHER,), tool_choice="required", max_tokens=160),
    )
    yield _dialogue(
        "turns/call-then-text",
        "a call, then text",
        "WS4 RS9",
        say(_USE, tools=(PING,), tool_choice="required", max_tokens=160),
        say("Hello"),
    )
    yield _dialogue("turns/same-again", "the same request twice", "WS4 RS13", say("Hello"), say("Hello"))
    yield _dialogue("warm-up/alone", "generate: false", "WS10 C8", say("Soon.", generate=False))
    yield _dialogue(
        "warm-up/continued", "generate: false, and on", "WS10 C8", say("Soon.", generate=False), say("Now.", previous=LAST)
    )
    yield _dialogue("warm-up/with-tools", "generate: false with tools", "WS10 C8", say("Soon.", generate=False, tools=(TIME,)))
    yield _dialogue(
        "warm-up/second", "generate: false after a turn", "WS10", say("Hello"), say("Soon.", generate=False, previous=LAST)
    )


def _chains() -> Iterator[Dialogue]:
    output = [{"type": "function_call_output", "call_id": CALL, "output": "sunny"}]
    called = say(_USE, tools=(WEATHER,), tool_choice="required", max_tokens=160)
    yield _dialogue(
        "chain/continued", "previous_response_id without storing", "WS8", say("My name is Ada."), say("And now?", previous=LAST)
    )
    yield _dialogue("chain/three", "a chain of three", "WS8", say("One"), say("Two", previous=LAST), say("Three", previous=LAST))
    yield _dialogue(
        "chain/tool-output-alone", "the output of a call is all that is sent", "WS8 C9",
        called, say("x", previous=LAST, input=output, tools=(WEATHER,)),
    )  # fmt: skip
    yield _dialogue(
        "chain/unknown", "an id that nobody knows, then a right turn", "WS7 WS8", say("Hi", previous="resp_nobody"), say("Hello")
    )
    lone = [{"type": "function_call_output", "call_id": "call_nobody", "output": "x"}]
    yield _dialogue(
        "chain/forgotten", "a continuation that fails is forgotten", "WS9",
        say("One"), say("x", previous=LAST, input=lone), say("Two", previous=FIRST),
    )  # fmt: skip
    yield _dialogue(
        "chain/stored", "a stored response is continued", "WS8 RS20", say("One", store=True), say("Two", previous=LAST)
    )


def _lanes() -> Iterator[Dialogue]:
    yield _dialogue("lanes/one", "a named lane", "WS6", say("Hello", lane="left"))
    yield _dialogue("lanes/odd-name", "the alphabet of names", "WS6", say("Hello", lane="A.z_0-9"))
    yield _dialogue(
        "lanes/two-in-series", "two lanes, one after the other", "WS6", say("Left", lane="left"), say("Right", lane="right")
    )
    both = Step((*say("Left", lane="left").messages, *say("Right", lane="right").messages), 2)
    yield _dialogue("lanes/two-at-once", "two lanes at once", "WS5 WS6", both)
    mixed = Step((*say("Left", lane="left").messages, *say("Right").messages), 2)
    yield _dialogue("lanes/beside-default", "a named lane beside the default one", "WS6", mixed)
    yield _dialogue("lanes/bad-name", "a name that no lane may have", "WS6 WS7", say("Hello", lane="no spaces!"))
    yield _dialogue(
        "lanes/chain", "a chain on a named lane", "WS6 WS8", say("One", lane="a"), say("Two", lane="a", previous=LAST)
    )


def _steering() -> Iterator[Dialogue]:
    stalled = say("Stall for 1.5 seconds after 3 tokens.")
    first = Step(stalled.messages, None)
    steer = {"type": "response.steer", "previous_response_id": LAST, "input": "Shorter, please."}
    yield _dialogue("steer/accepted", "steered in mid-answer: its successor follows", "WS15", first, Step((steer,), 3))
    yield _dialogue("steer/too-late", "steering after the end", "WS15", say("Hello"), Step((steer,)))
    yield _dialogue(
        "steer/unknown", "steering of what is not there", "WS15", Step(({**steer, "previous_response_id": "resp_nobody"},))
    )
    bad = {**steer, "input": [{"type": "message", "role": "assistant", "content": "no"}]}
    yield _dialogue("steer/bad-input", "steering with what only a model may say", "WS15", first, Step((bad,), 2))


def _errors() -> Iterator[Dialogue]:
    yield _dialogue("errors/unknown-type", "an unknown type of message", "WS12", Step(({"type": "response.dance"},)))
    yield _dialogue("errors/wrong-type", "a field of another type", "WS7 WS12", say("x", temperature="hot"))
    yield _dialogue("errors/no-input", "an input that is no input", "WS7", say("x", input=7))
    yield _dialogue("errors/unknown-model", "a model that is not served", "WS7", say("x", model="no-such-model-here"))
    yield _dialogue(
        "errors/then-turn", "an error, then a right turn", "WS7 WS12", Step(({"type": "response.dance"},)), say("Hello")
    )
    yield _dialogue("errors/after-turn", "a right turn, then an error", "WS7", say("Hello"), say("x", temperature="hot"))
    yield _dialogue("errors/on-lane", "an error on a named lane", "WS6 WS7", say("x", lane="left", input=7))
    yield _dialogue("errors/engine", "an engine that fails in mid-answer", "WS3 T7 RS14", say("Fail after 5 tokens."))


def say(text: str, *, previous: str | None = None, lane: str | None = None, tools: Any = (), **more: Any) -> Step:
    """One request, up to its end."""
    known = {name: more.pop(name) for name in ("tool_choice", "max_tokens") if name in more}
    asked = Ask((User(text),), tools=tools, **{"max_tokens": 16, **known}) if tools else ask(text, **{"max_tokens": 16, **known})
    named = {"previous_response_id": previous, "stream_id": lane}
    body = asked.body("responses", LAST, True) | {key: value for key, value in named.items() if value is not None} | more
    return Step((_message(body),))


def _message(body: dict[str, Any]) -> dict[str, Any]:
    """The body as a message; the model is put in by the recorder."""
    kept = {key: value for key, value in body.items() if key != "stream" and (key != "model" or value != LAST)}
    return {"type": "response.create", **kept}


def _dialogue(name: str, title: str, rules: str, *steps: Step) -> Dialogue:
    return Dialogue(name, title, tuple(rules.split()), steps)
