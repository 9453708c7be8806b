"""Why a call that began cannot be read on."""

from __future__ import annotations

from zllm_ref.dialect.event import DiagnosticKind


class CallError(ValueError):
    """Raised by the call parsers, answered by `ToolParser`: text again, if nothing was said yet; else a call that never ends."""

    def __init__(self, message: str, kind: DiagnosticKind = DiagnosticKind.INVALID_CALL) -> None:
        super().__init__(message)
        self.kind = kind
