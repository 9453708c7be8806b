"""The unary `message` object: the events that a stream would have sent, folded as a client folds them (AN22)."""

from __future__ import annotations

from typing import Any

from zllm_ref.canonical.json_value import JsonTextError, dump_json, parse_json_object
from zllm_ref.protocols.sse import Frame, dump, on_one_line


class Accumulator:
    """Takes the frames of a `Stream`. Texts are kept in pieces and joined once."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: list[dict[str, Any]] = []
        self._pieces: list[str] = []

    def on(self, frame: Frame) -> None:
        payload = frame.payload
        match payload["type"]:
            case "message_start":
                self._message = payload["message"]
            case "content_block_start":
                self._blocks.append(payload["content_block"])
                self._pieces = []
            case "content_block_delta":
                self._on_delta(payload["delta"])
            case "content_block_stop":
                self._close_block()
            case "message_delta":
                self._message |= payload["delta"]
                self._message["usage"] |= payload["usage"]
                if "zllm" in payload:
                    self._message["zllm"] = payload["zllm"]

    def result(self) -> str:
        """The JSON text of the whole answer. The input of a call is spliced in as it was written."""
        blocks = [_render(block) for block in self._blocks]
        head = dump({name: value for name, value in self._message.items() if name != "content"})
        return f'{head[:-1]},"content":[{",".join(blocks)}]}}'

    def _on_delta(self, delta: dict[str, Any]) -> None:
        match delta["type"]:
            case "text_delta":
                self._pieces.append(delta["text"])
            case "thinking_delta":
                self._pieces.append(delta["thinking"])
            case "input_json_delta":
                self._pieces.append(delta["partial_json"])
            case "signature_delta":
                self._blocks[-1]["signature"] = delta["signature"]

    def _close_block(self) -> None:
        block = self._blocks[-1]
        name = {"text": "text", "thinking": "thinking", "tool_use": "input"}[block["type"]]
        block[name] = "".join(self._pieces)


def _render(block: dict[str, Any]) -> str:
    if block["type"] != "tool_use":
        return dump(block)
    head = dump({name: value for name, value in block.items() if name != "input"})
    return f'{head[:-1]},"input":{_input(block["input"])}}}'


def _input(text: str) -> str:
    """Through the lossless reader, not through a dict: key order, duplicates and number text are the model's own.

    A call that `max_tokens` cut in two has no input that could be shown; it is an empty object, and `stop_reason` says why.
    """
    try:
        return on_one_line(dump_json(parse_json_object(text), separators=(",", ":")))
    except JsonTextError:
        return "{}"
