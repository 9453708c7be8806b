"""The tags that a parser looks for, worked out once for a dialect, a vocabulary's markers and a mode."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from zllm_ref.dialect.call_layout import ProtocolDefinition, TagLayout
from zllm_ref.dialect.cursor import Tag
from zllm_ref.dialect.markup import Alphabet, Framing, markers_of
from zllm_ref.dialect.repair import tolerant_tag
from zllm_ref.fence.grammar import Marker
from zllm_ref.tokenizer.vocabulary import Vocabulary


class TagTable:
    """Framings as tags in one alphabet; each is worked out when it is first asked for."""

    def __init__(self, alphabet: Alphabet, repairs: bool) -> None:
        self.alphabet = alphabet
        self.repairs = repairs
        self._lines: dict[Framing, tuple[Tag, ...]] = {}

    def lines(self, framing: Framing) -> tuple[Tag, ...]:
        """The tags of a framing that stand on lines of their own: white space between tags is never data."""
        found = self._lines.get(framing)
        if found is None:
            found = self._lines[framing] = tuple(map(self._tag, _split_lines(framing)))
        return found

    def first(self, framing: Framing) -> Tag:
        return self.lines(framing)[0]

    def _tag(self, line: Framing) -> Tag:
        return tolerant_tag(line, self.alphabet) if self.repairs else Tag(self.alphabet.of_framing(line))


@dataclass(frozen=True, slots=True)
class ParserTags:
    """What `ToolParser` itself waits for; the readers of calls ask the table."""

    table: TagTable
    call_open: Tag
    block_open: Tag | None
    block_close: Tag | None
    second_open: Tag | None
    """Repair: the second line of an opening tag whose first one is missing (`<function=` without `<tool_call>`)."""
    openers: tuple[Tag, ...]
    with_lead: tuple[Tag, ...]
    """The openers with the dialect's lead before them, in the same order; empty where it has none."""
    closers: tuple[Tag, ...]
    """Repair: closing tags, which close nothing while text is read, and are left out there."""
    suspicious: tuple[str, ...]
    """Strings that make text look like markup: worth a remark, never a change."""
    silent: frozenset[str]
    """Codes of markers that are never said: of reasoning, roles, results and ends."""
    strays: frozenset[str]
    """Codes that mean nothing in text: the silent ones, and tags of calls that open none (DSML's id is no tag by itself)."""

    of_openers: tuple[str, ...]
    """The markers in the openers: where one of them was read, what is held is certainly of a tag."""


def parser_tags(definition: ProtocolDefinition, vocabulary: Vocabulary | None, *, repairs: bool) -> ParserTags:
    """The tags for this vocabulary; None: every marker by its spelling."""
    markers = {} if vocabulary is None else vocabulary.markers
    return _parser_tags(definition, frozenset(name for name in definition.markers if name in markers), repairs)


@functools.lru_cache(maxsize=128)
def _parser_tags(definition: ProtocolDefinition, with_ids: frozenset[str], repairs: bool) -> ParserTags:
    layout = definition.calls
    of_calls = markers_of(*layout.framings)
    silent = [name for name in definition.markers if name not in of_calls]
    table = TagTable(Alphabet(definition.markers, dict.fromkeys(with_ids, 0), silent), repairs)
    opening = layout.call_open
    call_open = table.first(opening)
    block_open = block_close = second_open = None
    openers = [call_open]
    if isinstance(layout, TagLayout) and layout.block_open:
        opening = layout.block_open
        block_open, block_close = table.first(layout.block_open), table.lines(layout.block_close)[-1]
        openers = [block_open, call_open] if repairs else [block_open]
        suspicious = tuple(table.alphabet.code(Marker(name)) for name in markers_of(layout.block_open))
    else:
        suspicious = tuple(tag.literal for tag in table.lines(layout.call_close))
        lines = table.lines(layout.call_open)
        if repairs and len(lines) > 1:
            second_open = lines[1]
            openers.append(second_open)
    return ParserTags(
        table,
        call_open,
        block_open,
        block_close,
        second_open,
        tuple(openers),
        tuple(Tag(layout.lead + tag.literal) for tag in openers) if layout.lead else (),
        _closers(definition, table) if repairs else (),
        suspicious,
        frozenset(table.alphabet.silent_codes),
        frozenset(
            set(table.alphabet.codes)
            - ({tag.literal[0] for tag in openers} if block_open is None else _codes_of(table, of_calls))
        ),
        tuple(sorted(_codes_of(table, markers_of(opening)))),
    )


def _codes_of(table: TagTable, names: Sequence[str]) -> set[str]:
    return {table.alphabet.code(Marker(name)) for name in names}


def _closers(definition: ProtocolDefinition, table: TagTable) -> tuple[Tag, ...]:
    layout = definition.calls
    framings: list[Framing] = [layout.call_close]
    if isinstance(layout, TagLayout):
        framings += [layout.value_close, layout.block_close]
    if definition.reasoning is not None:
        framings.append((definition.reasoning.close_marker,))
    return tuple(tag for framing in framings for tag in table.lines(framing))


def _split_lines(framing: Framing) -> list[Framing]:
    lines: list[list[str | Marker]] = [[]]
    for piece in framing:
        if isinstance(piece, Marker):
            if lines[-1] and isinstance(lines[-1][-1], Marker):
                lines.append([])  # two markers in a row are two tags
            lines[-1].append(piece)
            continue
        first, *others = piece.split("\n")
        lines[-1] += [first] if first else []
        lines += [[other] if other else [] for other in others]
    return [tuple(line) for line in lines if line]
