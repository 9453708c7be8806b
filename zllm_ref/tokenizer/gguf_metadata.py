"""Reads the key-value head of a GGUF file, and nothing of its tensors.

The head holds arrays of fifty thousand strings; walking it with one cursor takes a fraction of a second, where a reader that
makes an object per element takes seconds. Every length is checked against the file before anything is allocated.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from zllm_ref.tokenizer.vocabulary import VocabularyError

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_FIELDS = 100_000


def read_gguf_metadata(path: Path) -> dict[str, Any]:
    """Key → number, bool, str or list of these. Raises VocabularyError on anything that is not a GGUF v2/v3 head."""
    if path.stat().st_size < 24:
        raise VocabularyError(f"{path}: got {path.stat().st_size} bytes, allowed a GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        cursor = _Cursor(view, str(path))
        magic, version, _tensors, fields = cursor.unpack("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise VocabularyError(f"{path}: got magic {magic!r} version {version}, allowed GGUF version 2 or 3")
        if fields > _MAX_FIELDS:
            raise VocabularyError(f"{path}: got {fields} metadata fields, allowed {_MAX_FIELDS}")
        metadata: dict[str, Any] = {}
        for _ in range(fields):
            key = cursor.string()
            (kind,) = cursor.unpack("<I")
            metadata[key] = cursor.value(kind, key)
        return metadata


class _Cursor:
    def __init__(self, view: mmap.mmap, where: str) -> None:
        self._view = view
        self._where = where
        self._position = 0

    def unpack(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(layout)
        self._need(size, layout)
        values = struct.unpack_from(layout, self._view, self._position)
        self._position += size
        return values

    def string(self) -> str:
        (length,) = self.unpack("<Q")
        self._need(length, "a string")
        start, self._position = self._position, self._position + length
        try:
            return self._view[start : self._position].decode("utf-8")
        except UnicodeDecodeError as error:
            raise VocabularyError(f"{self._where} at byte {start}: got broken UTF-8 ({error.reason}), allowed text") from None

    def value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            item_kind, count = self.unpack("<IQ")
            if item_kind == _STRING:
                self._need(8 * count, f"{count} strings of {key}")
                return [self.string() for _ in range(count)]
            if item_kind in _SCALARS:
                layout = f"<{_SCALARS[item_kind][1]}"
                self._need(struct.calcsize(layout) * count, f"{count} values of {key}")
                return list(self.unpack(f"<{count}{layout[1]}"))
            kind = item_kind
        elif kind in _SCALARS:
            return self.unpack(_SCALARS[kind])[0]
        raise VocabularyError(f"{self._where}, field {key}: got value type {kind}, allowed scalars, strings and flat arrays")

    def _need(self, size: int, what: str) -> None:
        left = len(self._view) - self._position
        if size > left:
            raise VocabularyError(f"{self._where} at byte {self._position}: got {left} bytes, allowed {size} for {what}")
