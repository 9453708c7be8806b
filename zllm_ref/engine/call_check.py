"""The last look at a finished call, where the fence could not hold everything that its tool asks for.

A rule that no mask holds (`not`, `uniqueItems`, a Lark grammar inside a JSON string …) leaves a finished call open to doubt: it
is judged here before its end is sent. A call that fails never ends: what was sent of it stays, nothing follows, and the answer
does not end for the sake of calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from zllm_ref.canonical.json_value import to_python
from zllm_ref.canonical.request import CustomTool, Tool
from zllm_ref.fence import FenceCompiler

_FORMATS = FormatChecker()


class CallCheck:
    """Judges calls of these tools. One per request whose fence has problems. Never asks the network for a schema."""

    def __init__(self, tools: Sequence[Tool], compiler: FenceCompiler) -> None:
        self._tools = {(tool.namespace, tool.name): tool for tool in tools}
        self._compiler = compiler

    def problem_of(self, namespace: str | None, name: str, arguments: str) -> str | None:
        """Why the finished call breaks its tool's rules; None: it keeps them, as far as they can be read."""
        tool = self._tools.get((namespace, name))
        if tool is None:
            return None
        if isinstance(tool, CustomTool):
            if tool.grammar is None or self._compiler.reads(*tool.grammar, arguments):
                return None
            return f"input: got {arguments[:80]!r}, allowed a text of the tool's {tool.grammar[0]} grammar"
        if tool.parameters is None:
            return None
        try:
            schema = _without_patterns(to_python(tool.parameters))
            validator = Draft202012Validator(schema, format_checker=_FORMATS, registry=Registry())
            error = next(validator.iter_errors(json.loads(arguments)), None)
        except (SchemaError, Unresolvable):
            return None  # a schema that cannot be read asks for nothing
        except RecursionError:
            return "arguments: got a value too deep to be judged"
        return None if error is None else f"{error.json_path}: {error.message[:200]}"


_MAPS = frozenset(("properties", "$defs", "definitions", "dependentSchemas"))
_DATA = frozenset(("const", "enum", "default", "examples", "required"))


def _without_patterns(schema: Any) -> Any:
    """The fence holds patterns; what it cannot read of them (look-around) is not judged, since a client's expression could take
    Python's engine for ever."""
    if isinstance(schema, list):
        return [_without_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left = {key for key in schema if key not in ("pattern", "patternProperties")}
    if "patternProperties" in schema:
        left.discard("additionalProperties")
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key not in left:
            continue
        if key in _MAPS and isinstance(value, dict):
            kept[key] = {name: _without_patterns(one) for name, one in value.items()}
        else:
            kept[key] = value if key in _DATA else _without_patterns(value)
    return kept
