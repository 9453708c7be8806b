"""Event streams, bytes to frames, as WHATWG describes them and stricter: what a parser would skip is told.

Any split of the bytes gives the same frames. Lines end at LF, CR or CRLF and nowhere else (U+2028 is data). One byte order
mark at the start is dropped. Comments are counted. Only the open block is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_FIELDS = frozenset({b"data", b"event", b"id", b"retry"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One dispatched event. `fault` says what is wrong with its bytes; the text is then as good as it gets."""

    event: str | None
    data: str
    fault: str | None = None


class SseDecoder:
    """Feed bytes, get frames; `finish` gives a last half block, with its fault."""

    def __init__(self) -> None:
        self.num_comments = 0
        self.num_bytes = 0
        self._rest = b""
        self._after_cr = False
        self._is_first = True
        self._event: str | None = None
        self._data: list[str] = []
        self._fault: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        self.num_bytes += len(chunk)
        if self._is_first:
            chunk = self._rest + chunk
            self._rest = b""
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._rest = chunk
                return
            self._is_first = False
            chunk = chunk.removeprefix(_BOM)
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:
            self._rest += chunk
            return
        *lines, rest = chunk.split(b"\n")
        lines[0] = self._rest + lines[0]
        self._rest = rest
        for line in lines:
            if not line:
                if self._data:
                    yield self._dispatch()
                self._event, self._data, self._fault = None, [], None
            else:
                self._read_line(line)

    def finish(self) -> Iterator[Frame]:
        """The end of the body. A block without its blank line is half a block: a parser throws it away."""
        if self._is_first:
            self._is_first = False
        if self._rest:
            self._read_line(self._rest)
            self._rest = b""
        if self._data or self._event is not None:
            self._fault = self._fault or "the last block is not closed by a blank line"
            yield self._dispatch()
            self._event, self._data, self._fault = None, [], None

    def _dispatch(self) -> Frame:
        return Frame(self._event, "\n".join(self._data), self._fault)

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(self._decode(line[6:] if line[5:6] == b" " else line[5:]))
            return
        if line.startswith(b":"):
            self.num_comments += 1
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = self._decode(value)
        elif name == b"data":
            self._data.append("")
        elif name not in _FIELDS:
            self._fault = f"line {line[:60]!r} is no field of an event stream"
            if not self._data:
                self._data.append("")

    def _decode(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            self._fault = f"bytes {value[error.start : error.end]!r} are not UTF-8"
            return value.decode(errors="replace")
