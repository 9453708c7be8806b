"""What becomes of every documented request field: a table a protocol, checked before anything else is read.

USED        read by `request`, which checks its value
NO_EFFECT   its type is checked, it is accepted, and `because` says why it changes nothing
REFUSED     a clear 400 that names the field, unless it is null or one of the `neutral` values that ask for nothing
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonValue, dump_json, kind_of
from zllm_ref.protocols.reader import Reader, unsupported, wrong_type


class Support(StrEnum):
    USED = "used"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Field:
    """`kinds`: the JSON types that a NO_EFFECT field may have."""

    name: str
    support: Support
    because: str = ""
    kinds: tuple[str, ...] = ()
    neutral: tuple[JsonValue, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldTable:
    fields: tuple[Field, ...]

    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    def check(self, reader: Reader, *, ignore_unknown: bool) -> tuple[str, ...]:
        """Raises ApiError for a refused, ill-typed or (unless ignored) unknown field; gives the names of those ignored."""
        known = self.by_name()
        ignored: list[str] = []
        for name, value in reader.value.pairs:
            field = known.get(name)
            if field is None:
                if not ignore_unknown:
                    raise ApiError(
                        ErrorKind.INVALID_VALUE,
                        f"'{reader.at(name)}': got an unknown field, allowed the documented fields of this endpoint",
                        param=reader.at(name),
                        code="unknown_parameter",
                    )
                ignored.append(name)
            elif value is None or field.support is Support.USED:
                continue
            elif field.support is Support.NO_EFFECT:
                if kind_of(value) not in field.kinds:
                    raise wrong_type(reader.at(name), value, " or ".join(field.kinds))
            elif value not in field.neutral:
                raise unsupported(reader.at(name), name, field.because)
        return tuple(ignored)


def as_markdown(table: FieldTable) -> str:
    """The rows for people: a field, what becomes of it, and why."""
    lines = ["| field | becomes | why |", "|---|---|---|"]
    for field in table.fields:
        because = field.because
        if field.support is Support.REFUSED and field.neutral:
            because += "; accepted where it asks for nothing: " + ", ".join(f"`{_shown(value)}`" for value in field.neutral)
        lines.append(f"| `{field.name}` | {field.support.value} | {because} |")
    return "\n".join(lines) + "\n"


def _shown(value: JsonValue) -> str:
    return dump_json(value)


def used(*names: str) -> Iterable[Field]:
    return (Field(name, Support.USED) for name in names)


def no_effect(name: str, kinds: str | tuple[str, ...], because: str) -> Field:
    return Field(name, Support.NO_EFFECT, because, (kinds,) if isinstance(kinds, str) else kinds)


def refused(name: str, because: str, *neutral: JsonValue) -> Field:
    return Field(name, Support.REFUSED, because, neutral=neutral)
