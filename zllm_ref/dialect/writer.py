"""Collects segments: what the template writes, what a client wrote, what was generated before."""

from __future__ import annotations

from collections.abc import Sequence

from zllm_ref.canonical.message import Role
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.segment import Author, MarkerSegment, Origin, ReplaySegment, Segment, TextSegment
from zllm_ref.tokenizer.vocabulary import Vocabulary


class SegmentWriter:
    """Markers become ids where the vocabulary has them, and template text where it has not (text mode)."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._segments: list[Segment] = []

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def template(self, framing: Framing | str, role: Role | None = None) -> None:
        """What the dialect writes. A str is text: it never becomes a marker."""
        origin = Origin(role, Author.TEMPLATE)
        for piece in (framing,) if isinstance(framing, str) else framing:
            if isinstance(piece, str):
                self._text(piece, origin)
                continue
            token_id = self._vocabulary.marker_id(piece.name)
            if token_id is None:
                self._text(piece.name, origin)
            else:
                self._segments.append(MarkerSegment(token_id, piece.name, origin))

    def trusted(self, text: str, role: Role | None = None) -> None:
        """A longer text of the dialect's own (instructions), in which a marker's spelling means the marker."""
        origin = Origin(role, Author.TEMPLATE)
        for piece in self._vocabulary.split_at_markers(text):
            token_id = self._vocabulary.marker_id(piece)
            if token_id is None:
                self._text(piece, origin)
            else:
                self._segments.append(MarkerSegment(token_id, piece, origin))

    def client(self, text: str, role: Role) -> None:
        self._text(text, Origin(role, Author.CLIENT))

    def schema(self, text: str) -> None:
        """The JSON of a client's tool, inside the tool instructions."""
        self._text(text, Origin(Role.SYSTEM, Author.TOOL_SCHEMA))

    def replay(self, ids: Sequence[int]) -> None:
        """Ids of an earlier answer of this server, as they were generated."""
        if ids:
            text = self._vocabulary.decode(ids)
            self._segments.append(ReplaySegment(tuple(ids), text, Origin(Role.ASSISTANT, Author.MODEL)))

    def extend(self, segments: Sequence[Segment]) -> None:
        """Segments that were made elsewhere (by a template)."""
        self._segments.extend(segments)

    def _text(self, text: str, origin: Origin) -> None:
        if text:
            self._segments.append(TextSegment(text, origin))
