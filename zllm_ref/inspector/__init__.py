"""Shows what the model saw: a bounded record of the last requests, and what can be told from it.

    server ─ bytes, frames ─▶ ┐                       ┌─▶ panels of one request: wire, conversation, segments, tokens,
    engine ─ prompt, ids ───▶ ┴ Recorder ─ Record ────┤   context, prefix, decode
                                                      ├─▶ list of requests, cache, K/V figures
    nobody asks: nothing is worked out                └─▶ playground: render, merges (no model runs)

Knows: the bytes that came and went, the conversation, the rendered segments, the ids, the cache's verdicts, the tokens of an
answer with how each came to be. It is told all of this by those who know it and works it out when somebody looks.

Must never know: how to serve a request. A server without an inspector answers the same bytes.

    inspector.py             one method a path of docs/inspector.md; problem.py what it can answer instead
    record.py, recorder.py   what went by, bounded
    axis.py                  tokens, bytes and UTF-16 units of one request beside each other; utf16.py, json_places.py
    attribution.py, prompt_view.py, view.py   whose segment is whose; where every part and event lies on the axis
    summary.py, wire_panel.py, conversation_panel.py, token_panels.py, context_panel.py, decode_panel.py, prefix_panel.py
    composition.py           what a prompt is made of
    nearest.py, prefix_break.py, prefix_cause.py, prefix_words.py   the earlier state, and why it was not, or not wholly, reused
    cache_contents.py, kv_figures.py   the cache as a tree; what a context costs
    playground.py, family.py, family_tokenizers.py, merges.py, harmony_renderer.py, deepseek_v3_renderer.py
    body_file.py, explanation.py   the same without a server: `explain`
    static/                  the page, built
"""

from zllm_ref.inspector.record import Arrival, Record, State
from zllm_ref.inspector.recorder import Recorder

__all__ = ["Arrival", "Record", "Recorder", "State"]
