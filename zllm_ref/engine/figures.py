"""What the cache and the drafts say of themselves, for `/metrics`. Read by another thread: each number is right by itself."""

from __future__ import annotations

from collections.abc import Iterator

from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.canonical.figure import Figure
from zllm_ref.runtime.speculation import DraftCounts


def draft_figures(counts: DraftCounts) -> Iterator[Figure]:
    """Guesses that were verified, and those that were what the model said."""
    yield Figure("draft_rounds", "Rounds in which guesses were verified", counts.rounds, True)
    yield Figure("drafted_tokens", "Guesses that were verified", counts.drafted, True)
    yield Figure("accepted_tokens", "Guesses that were what the model said", counts.accepted, True)


def cache_figures(cache: PrefixCache) -> Iterator[Figure]:
    """Bytes by use, hits by tier, misses, waits, evictions; with an SSD tier also its bytes, restores and near misses."""
    for state, value in (
        ("free", cache.free_bytes),
        ("resident", cache.resident_bytes),
        ("pinned", cache.pinned_bytes),
        ("reserved", cache.reserved_bytes),
    ):
        yield Figure("cache_bytes", "Bytes of the resident budget by use", value, labels={"use": state})
    counts = cache.counts
    ssd = cache.ssd_counts if isinstance(cache, TieredCache) else None
    on_ssd = ssd.hits if ssd is not None else 0
    yield Figure("cache_hits", "Prompts that began with a saved state", counts.hits, True, {"tier": "resident"})
    yield Figure("cache_hits", "Prompts that began with a saved state", on_ssd, True, {"tier": "ssd"})
    yield Figure("cache_misses", "Prompts computed from their start", counts.misses, True)
    yield Figure("cache_commits", "End states kept", counts.commits, True)
    yield Figure("cache_not_kept", "End states that found no room", counts.not_kept, True)
    yield Figure("cache_evictions", "Saved states freed", counts.evictions, True)
    yield Figure("admission_waits", "Times a request had to wait for bytes", counts.waits, True)
    if ssd is None or not isinstance(cache, TieredCache):
        return
    yield Figure("ssd_used_bytes", "Bytes of all snapshots", cache.store.used_bytes)
    yield Figure("ssd_capacity_bytes", "Budget of the snapshots", cache.store.capacity_bytes)
    yield Figure("ssd_written_bytes", "Bytes written", cache.store.written_bytes, True)
    yield Figure("ssd_restored_bytes", "Bytes read into sessions", ssd.restored_bytes, True)
    yield Figure("ssd_restore_seconds", "Time of all restores", ssd.restore_seconds, True)
    yield Figure("ssd_restores_refused", "Snapshots that could not be read and were misses", ssd.restores_refused, True)
    yield Figure("ssd_recomputed", "Snapshots left unread because computing was faster", ssd.recomputed, True)
    yield Figure("ssd_saves", "Snapshots written", ssd.saves, True)
    yield Figure("ssd_saves_failed", "Snapshots that could not be written", ssd.saves_failed, True)
    yield Figure("near_misses", "Prompts that nearly had a hit", ssd.near_misses, True)
