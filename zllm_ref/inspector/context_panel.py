"""The context beside its K/V: what was reused from which tier, what was computed, what came behind; block by block."""

from __future__ import annotations

from typing import Any

from zllm_ref.cache.prefix_graph import id_bytes_of
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.inspector.cache_contents import kept_blocks
from zllm_ref.inspector.nearest import state_ids
from zllm_ref.inspector.view import View


def context(view: View, cache: PrefixCache, cache_namespace: str, context_length: int) -> dict[str, Any]:
    record, layout = view.record, cache.layout
    prompt, total = view.axis.num_prompt, view.axis.num_tokens
    cached = record.report.cached_tokens if record.report is not None else 0
    hit_kind = "hit_ssd" if record.report is not None and record.report.cache_tier == "ssd" else "hit_resident"
    held = max(prompt, total - record.num_pending)
    pieces = [(hit_kind, 0, cached), ("recomputed", cached, prompt), ("output", prompt, total)]
    spans = [
        {"kind": kind, "tokens": [start, end], "bytes": layout.rows_bytes(max(0, min(end, held) - start))}
        for kind, start, end in pieces
        if end > start
    ]
    kept = kept_blocks(cache, cache_namespace, id_bytes_of(state_ids(record)))
    blocks = []
    for index, start in enumerate(range(0, held, layout.block_tokens)):
        end = min(start + layout.block_tokens, held)
        kind = hit_kind if start < cached else "recomputed" if start < prompt else "output"
        blocks.append(
            {
                "index": index,
                "tokens": [start, end],
                "kind": kind,
                "bytes": layout.rows_bytes(end - start),
                "kept": kept[index] if index < len(kept) else None,
            }
        )
    return {
        "block_tokens": layout.block_tokens,
        "bytes_per_token": layout.bytes_per_token,
        "fixed_bytes": layout.fixed_bytes,
        "context_length": context_length,
        "cuttable": layout.cuttable,
        "spans": spans,
        "blocks": blocks,
        "cache_id": record.kept_cache_id,
        "hit_cache_id": record.hit_cache_id,
    }
