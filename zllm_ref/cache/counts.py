"""What happened in each tier since the start, for metrics and tests; numbers that only grow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CacheCounts:
    """What happened since the start; only ever grows."""

    hits: int = 0
    misses: int = 0
    waits: int = 0
    commits: int = 0
    not_kept: int = 0
    evictions: int = 0


@dataclass
class SsdCounts:
    """What happened on SSD since the start; only ever grows."""

    hits: int = 0
    restored_bytes: int = 0
    restore_seconds: float = 0.0
    restores_refused: int = 0
    saves: int = 0
    save_seconds: float = 0.0
    saves_failed: int = 0
    states_lost: int = 0
    """Dirty states that had to go unsaved."""
    recomputed: int = 0
    """Snapshots that were left unread because computing was faster."""
    near_misses: int = 0
