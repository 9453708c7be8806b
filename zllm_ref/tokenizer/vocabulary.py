"""A vocabulary: which ids there are, what bytes they stand for, which are markers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

END_SPELLINGS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<｜end▁of▁sentence｜>",
    "<|EOT|>",
    "<end_of_turn>",
    "</s>",
)
"""Markers that end a turn in one family or another: where a vocabulary has one, generating it stops."""

GLM_PREFIX = "[gMASK]"
GLM_END_SPELLINGS = ("<|user|>", "<|observation|>")
"""GLM has no end-of-turn token: a turn ends by predicting who speaks next (only where the vocabulary is GLM's)."""


class VocabularyError(ValueError):
    """The files do not describe a vocabulary that this project can read, or a text cannot be encoded."""


class TextEncoder(Protocol):
    """Turns text into ids that are no markers. `name` enters the vocabulary's digest."""

    @property
    def name(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, each encoded by itself."""


class Vocabulary:
    """Text ⇄ ids for one model. Immutable; share one between all requests.

    `pieces[id]` are the bytes of an id (of a marker: its spelling in UTF-8; of a hole in the numbering: no bytes).
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        markers: Mapping[str, int],
        encoder: TextEncoder,
        *,
        declared_stop_ids: Sequence[int] = (),
        bos_id: int | None = None,
        bos_is_added: bool = False,
        chat_template: str | None = None,
        also_stops: Sequence[str] = (),
    ) -> None:
        self._pieces = tuple(pieces)
        self._markers = MappingProxyType(dict(markers))
        self._marker_texts = MappingProxyType({token_id: text for text, token_id in markers.items()})
        self._encoder = encoder
        self._bos_id = bos_id
        self._bos_is_added = bos_is_added
        self._chat_template = chat_template
        spellings = (*END_SPELLINGS, *also_stops, *(GLM_END_SPELLINGS if self._is_glm(markers) else ()))
        stops = {markers[text] for text in spellings if text in markers}
        self._eos_id = declared_stop_ids[0] if declared_stop_ids else None
        self._stop_ids = tuple(sorted(stops | set(declared_stop_ids)))
        for token_id in (*self._marker_texts, *self._stop_ids):
            if not 0 <= token_id < len(self._pieces):
                raise VocabularyError(f"marker or stop id: got {token_id}, allowed 0 to {len(self._pieces) - 1}")

    @staticmethod
    def _is_glm(markers: Mapping[str, int]) -> bool:
        return GLM_PREFIX in markers and "<|im_start|>" not in markers

    @property
    def encoder(self) -> TextEncoder:
        """What turns text into ids: for whoever shows how."""
        return self._encoder

    @property
    def size(self) -> int:
        """Number of ids, holes included. The model's output may be wider (padding): those ids do not exist here."""
        return len(self._pieces)

    @property
    def markers(self) -> Mapping[str, int]:
        """Spelling → id of every added or special token."""
        return self._markers

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """All ids that end a turn, ascending."""
        return self._stop_ids

    @property
    def eos_id(self) -> int | None:
        """The one id that the files call the end of a sequence; `stop_ids` holds it and the others."""
        return self._eos_id

    @property
    def bos_id(self) -> int | None:
        return self._bos_id

    @property
    def bos_is_added(self) -> bool:
        """The tokenizer's files ask for the first id before every text; a chat template writes it itself."""
        return self._bos_is_added

    @property
    def chat_template(self) -> str | None:
        """The template that lay beside the vocabulary in the same file, if one did."""
        return self._chat_template

    @property
    def keeps_ascii(self) -> bool:
        """The encoder answers for it that ASCII texts come back from their ids; False: whoever needs it must try."""
        return bool(getattr(self._encoder, "keeps_ascii", False))

    def marker_id(self, text: str) -> int | None:
        return self._markers.get(text)

    def marker_text(self, token_id: int) -> str | None:
        """The spelling of a marker; None: `token_id` is a piece of text."""
        return self._marker_texts.get(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the id stands for (a marker: its spelling). A hole in the numbering has none."""
        if not 0 <= token_id < len(self._pieces):
            raise VocabularyError(f"token id: got {token_id}, allowed 0 to {len(self._pieces) - 1}")
        return self._pieces[token_id]

    def encode_text(self, text: str) -> list[int]:
        """The ids of a text. Never a marker: a text that spells one becomes ordinary pieces."""
        return self.encode_texts((text,))[0]

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode_text`, for several texts that do not touch each other, in one native call."""
        for text in texts:
            _refuse_surrogates(text)
        return self._encoder.encode(texts)

    def encode_with_markers(self, text: str) -> list[int]:
        """The ids of a text that the server wrote itself, where a marker's spelling means the marker."""
        ids: list[int] = []
        for part in self.split_at_markers(text):
            marker = self._markers.get(part)
            if marker is not None:
                ids.append(marker)
            else:
                ids.extend(self.encode_text(part))
        return ids

    def split_at_markers(self, text: str) -> list[str]:
        """The text cut at every spelling of a marker, the longest first where several begin; no empty parts."""
        return [part for part in self._marker_pattern.split(text) if part]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, markers spelled out, broken bytes as U+FFFD. For logs and tests; answers use `Detokenizer`."""
        return b"".join(self.token_bytes(token_id) for token_id in ids).decode("utf-8", "replace")

    @cached_property
    def digest(self) -> str:
        """Changes when any id, marker or rule of encoding changes."""
        state = hashlib.sha256()
        state.update(self._encoder.name.encode())
        for piece in self._pieces:
            state.update(len(piece).to_bytes(4, "little"))
            state.update(piece)
        for text, token_id in sorted(self._markers.items()):
            state.update(f"\0{text}\0{token_id}".encode())
        state.update(repr(self._stop_ids).encode())
        return state.hexdigest()

    @cached_property
    def _marker_pattern(self) -> re.Pattern[str]:
        spellings = sorted(self._markers, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, spellings)) + ")") if spellings else re.compile("(?!)")


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise VocabularyError(
            f"text at character {error.start}: got the lone surrogate {text[error.start]!a}, allowed Unicode scalar values"
        ) from None
