"""The unary `chat.completion` object: the chunks that a stream would have sent, folded as a client folds them (X1)."""

from __future__ import annotations

from typing import Any

from zllm_ref.protocols.sse import Frame, dump

_GROWING = {"function": "arguments", "custom": "input"}


class Accumulator:
    """Takes the frames of a `Stream` made with `include_usage=True`."""

    def __init__(self) -> None:
        self._object: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    def on(self, frame: Frame) -> None:
        if frame.is_done:
            return
        chunk = frame.payload
        for name in ("id", "object", "created", "model", "service_tier", "system_fingerprint"):
            self._object.setdefault(name, chunk[name])
        if chunk.get("usage") is not None:
            self._object["usage"] = chunk["usage"]
        if "zllm" in chunk:
            self._object["zllm"] = chunk["zllm"]
        for choice in chunk["choices"]:
            self._choices.setdefault(choice["index"], _Choice()).on(choice)

    def result(self) -> str:
        """The JSON text of the whole answer."""
        ordered = [self._choices[index].result(index) for index in sorted(self._choices)]
        head = self._object | {"object": "chat.completion"}
        tail = {name: head.pop(name) for name in ("usage", "service_tier", "system_fingerprint", "zllm") if name in head}
        return dump({**head, "choices": ordered, **tail})


class _Choice:
    def __init__(self) -> None:
        self._texts: dict[str, list[str] | None] = {"content": None, "refusal": None, "reasoning_content": None}
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._logprobs: dict[str, list[Any] | None] | None = None
        self._finish_reason: str | None = None

    def on(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        for name in self._texts:
            if delta.get(name) is not None:
                pieces = self._texts[name]
                self._texts[name] = pieces = [] if pieces is None else pieces
                pieces.append(delta[name])
        for call in delta.get("tool_calls", ()):
            self._on_call(call)
        if choice["logprobs"] is not None:
            self._on_logprobs(choice["logprobs"])
        if choice["finish_reason"] is not None:
            self._finish_reason = choice["finish_reason"]

    def _on_logprobs(self, logprobs: dict[str, Any]) -> None:
        if self._logprobs is None:
            self._logprobs = {"content": None, "refusal": None}
        for name, tokens in logprobs.items():
            known = self._logprobs[name]
            if tokens is not None and known is not None:
                known.extend(tokens)
            elif tokens is not None:
                self._logprobs[name] = list(tokens)

    def _on_call(self, call: dict[str, Any]) -> None:
        kind = "custom" if "custom" in call else "function"
        if "id" in call:
            self._calls.append({name: call[name] for name in ("id", "type", kind)})
            self._arguments.append([])
            return
        self._arguments[call["index"]].append(call[kind][_GROWING[kind]])

    def result(self, index: int) -> dict[str, Any]:
        texts = {name: None if pieces is None else "".join(pieces) for name, pieces in self._texts.items()}
        message: dict[str, Any] = {"role": "assistant", "content": texts["content"], "refusal": texts["refusal"]}
        message["annotations"] = []
        if texts["reasoning_content"] is not None:
            message["reasoning_content"] = texts["reasoning_content"]
        if self._calls:
            for call, pieces in zip(self._calls, self._arguments, strict=True):
                kind = call["type"]
                call[kind][_GROWING[kind]] = "".join(pieces)
            message["tool_calls"] = self._calls
        return {"index": index, "message": message, "logprobs": self._logprobs, "finish_reason": self._finish_reason}
