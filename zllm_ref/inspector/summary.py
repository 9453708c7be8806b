"""One line of the list of requests."""

from __future__ import annotations

import re
from typing import Any

from zllm_ref.inspector.record import Record


def summary(record: Record) -> dict[str, Any]:
    """What `docs/inspector.md` calls a Summary; only what is known already, nothing is worked out."""
    report = record.report
    timings = record.timings or (report.timings if report is not None else None)
    cached = report.cached_tokens if report is not None else None
    tier = report.cache_tier if report is not None else None
    prompt = len(record.prompt_ids) if record.request is not None else None
    return {
        "id": record.request_id,
        "number": record.number,
        "protocol": record.arrival.protocol,
        "transport": record.transport,
        "path": record.arrival.path,
        "client": client_of(record.arrival.user_agent),
        "user_agent": record.arrival.user_agent,
        "model": record.request.model if record.request is not None else None,
        "state": record.state.value,
        "received_at_ms": record.received_at_ms,
        "prompt_tokens": prompt,
        "cached_resident": None if cached is None else cached if tier == "resident" else 0,
        "cached_ssd": None if cached is None else cached if tier == "ssd" else 0,
        "computed_tokens": None if cached is None or prompt is None else prompt - cached,
        "output_tokens": len(record.ids),
        "reasoning_tokens": record.facts.get("reasoning_tokens", 0),
        "queue_ms": milliseconds(timings.queue if timings is not None else None),
        "restore_ms": milliseconds(timings.restore if timings is not None else None),
        "prefill_ms": milliseconds(timings.prefill if timings is not None else None),
        "ttft_ms": milliseconds(record.started_at - record.received if record.started_at is not None else None),
        "render_ms": milliseconds(record.render_seconds),
        "decode_tokens_per_second": decode_speed(record),
        "total_ms": milliseconds(record.ended_at - record.received if record.ended_at is not None else None),
        "end_reason": record.end_reason,
        "error": record.error,
        "num_choices": record.request.num_choices if record.request is not None else 1,
        "cause": record.facts.get("cause"),
        "draft": {"proposed": record.num_proposed, "accepted": record.num_accepted},
    }


def client_of(user_agent: str) -> str:
    """The first product of a user agent: `OpenAI/Python 3.57.0`, `claude-cli/2.1.0`."""
    found = re.match(r"[^\s(;]+(?: \d[^\s(;]*)?", user_agent.strip())
    return found[0][:60] if found else ""


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def decode_speed(record: Record) -> float | None:
    """Tokens a second from the first to the newest."""
    if record.started_at is None or len(record.steps) < 2:
        return None
    first, last = record.steps[0], record.steps[-1]
    seconds = last.at - first.at
    return round((last.end - first.end) / seconds, 2) if seconds > 0 else None
