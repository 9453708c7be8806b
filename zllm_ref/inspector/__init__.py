"""Shows what the model saw: a bounded record of the last requests, and what can be told from it.

    server ─ bytes, frames ─▶ ┐                       ┌─▶ panels of one request: wire, conversation, segments, tokens,
    engine ─ prompt, ids ───▶ ┴ Recorder ─ Record ────┤   context, prefix, decode
                                                      ├─▶ list of requests, cache, K/V figures
    nobody asks: nothing is worked out                └─▶ playground: render, merges (no model runs)

Knows: the bytes that came and went, the conversation, the rendered segments, the ids, the cache's verdicts, the tokens of an
answer with how each came to be. It is told all of this by those who know it and works it out when somebody looks.

Must never know: how to serve a request. A server without an inspector answers the same bytes.

    record.py, recorder.py   what went by, bounded
    axis.py                  tokens, bytes and UTF-16 units of one request beside each other
"""

from zllm_ref.inspector.record import Arrival, Record, State
from zllm_ref.inspector.recorder import Recorder

__all__ = ["Arrival", "Record", "Recorder", "State"]
