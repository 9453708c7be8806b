"""What the laws of the three protocols share: reporting, constant values, usage arithmetic, texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from conformance.checker.joined import Joined
from conformance.grammar.fields import show
from conformance.grammar.violation import Violation

_MARKUP: Final = re.compile(
    r"</?tool_call>|\[TOOL_CALLS\]|<\|tool_calls?_?\w*\|>|<｜tool▁|<｜DSML｜|</?function_calls>|<function=|<\|python_tag\|>"
)
_SPECIAL: Final = re.compile(
    r"<\|(?:im_start|im_end|endoftext|eot_id|eom_id|start_header_id|end_header_id|begin_of_text|end_of_text|start|end|return|call|"
    r"channel|message)\|>|<｜(?:begin|end)▁of▁sentence｜>|<end_of_turn>|<start_of_turn>|\[/INST\]"
)
_WINDOW = 40
UNTOLD: Final = object()
"""In an outline: a value that two right servers may tell differently, so that nothing is compared."""


class Laws:
    """One stream. `event_number` is set by the caller before each `observe`."""

    def __init__(self, levels: Mapping[str, str], request: Mapping[str, Any] | None = None) -> None:
        self.levels = levels
        self.request = request
        self.event_number = 0
        self.found: list[Violation] = []
        self.may_hold_replacement_character = False
        self.replacement_level: str | None = "SHOULD"
        """A model may write U+FFFD itself; only beside a unary answer without one it is surely the server's doing (MUST)."""
        self._constants: dict[str, Any] = {}

    def observe(self, kind: str, payload: dict[str, Any]) -> None:
        raise AssertionError("each protocol has its own")

    def finish(self) -> None:
        raise AssertionError("each protocol has its own")

    def outline(self) -> dict[str, Any]:
        """Path to value of everything that the unary answer must repeat; texts as `Joined`."""
        raise AssertionError("each protocol has its own")

    def report(self, rule: str, at: str, expected: object, got: object, level: str | None = None) -> None:
        own = self.levels.get(rule, "MUST")
        if own == "OFF":
            return
        self.found.append(
            Violation(
                rule,
                self.event_number,
                at,
                expected if isinstance(expected, str) else show(expected),
                got if isinstance(got, str) else show(got),
                level or own,
            )
        )

    def constant(self, rule: str, name: str, value: object) -> None:
        """The first value seen stays the only one."""
        first = self._constants.setdefault(name, value)
        if first != value or type(first) is not type(value):
            self.report(rule, name, first, value)

    def check_text(self, text: Text, delta: str, at: str) -> None:
        """T3 and CH16/CH20 on the piece that has just come, across the border to the piece before."""
        if "\ufffd" in delta and not self.may_hold_replacement_character:
            self.report("T3", at, "whole characters", f"U+FFFD in {show(delta)}", self.replacement_level)
        if text.has_lone_surrogate:
            text.has_lone_surrogate = False
            self.report("T3", at, "whole characters", f"half a surrogate pair in {show(delta)}")
        window = text.window + delta
        if "<" in window or "[" in window:
            for pattern, rule in ((_MARKUP, "CH16"), (_SPECIAL, "CH20")):
                hit = pattern.search(window)
                if hit is not None and hit.end() > len(text.window):
                    self.report(rule, at, "text without the model's own markup", hit.group(), "SHOULD")
        text.window = window[-_WINDOW:]

    def check_sum(self, rule: str, at: str, total: object, *parts: object) -> None:
        if _are_integers(total, *parts) and total != sum(parts):  # type: ignore[arg-type]
            self.report(rule, at, f"{sum(parts)} = {' + '.join(map(str, parts))}", total)  # type: ignore[arg-type]

    def check_within(self, rule: str, at: str, part: object, whole: object) -> None:
        if _are_integers(part, whole) and part > whole:  # type: ignore[operator]
            self.report(rule, at, f"at most {whole}", part)

    def check_counts(self, rule: str, at: str, usage: Mapping[str, Any]) -> None:
        """Nothing negative, nothing that is not a whole number, one level deep."""
        for name, value in usage.items():
            if isinstance(value, dict):
                self.check_counts(rule, f"{at}.{name}", value)
            elif name.endswith("tokens") and value is not None and (type(value) is not int or value < 0):
                self.report(rule, f"{at}.{name}", "a whole number from 0", value)


class Text(Joined):
    """A joined text and the last characters of it, for patterns that cross a border."""

    __slots__ = ("window",)

    def __init__(self) -> None:
        super().__init__()
        self.window = ""


def _are_integers(*values: object) -> bool:
    return all(type(value) is int for value in values)


def at_path(value: object, *keys: str) -> Any:
    """`value[keys[0]][keys[1]]…`, None where a step is missing."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
