"""Keeping states: what a request leaves in the cache, copied a little at a time.

    prompt and answer   [block][block][block][block][block][block][rest]
                        └ beside chunks and rounds, so many bytes each ┘└ at the end, with what the answer added

A long state has gigabytes: copied in one piece when its request ends, it would keep every stream waiting for longer than a
chunk does. Blocks that were copied early are within what admission set aside for keeping.
"""

from __future__ import annotations

import logging

from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.state import BLOCK_TOKENS

_log = logging.getLogger(__name__)

COPY_BYTES = 64 << 20
"""So much is copied beside one chunk or round: some hundredths of a second."""


class Keeper:
    """Keeps states in one cache. Belongs to the runtime's thread."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache

    def copy_ahead(self, handle: JobHandle) -> bool:
        """Copies whole blocks of the prompt that no saved state has, at most `COPY_BYTES` of them. True: none of them is left."""
        state, admission = handle.state, handle.admission
        if state is None or admission is None or not (admission.will_keep and handle.job.keep):
            return True
        if handle.copied_tokens is None:
            uses = admission.hit.blocks if admission.hit is not None else ()
            handle.copied_tokens = (uses[-1].start + uses[-1].num_rows) // BLOCK_TOKENS * BLOCK_TOKENS if uses else 0
        block_bytes = state.declaration.bytes_per_token * BLOCK_TOKENS
        num_blocks = max(1, COPY_BYTES // max(1, block_bytes))
        end = min(state.length, int(handle.job.prompt_ids.shape[0])) // BLOCK_TOKENS * BLOCK_TOKENS
        try:
            while num_blocks and handle.copied_tokens < end:
                state.copy_ahead(handle.copied_tokens, handle.copied_tokens + BLOCK_TOKENS)
                handle.copied_tokens += BLOCK_TOKENS
                num_blocks -= 1
        except (RuntimeError, ValueError, MemoryError):
            _log.exception("copying ahead failed: what is missing is copied when the answer ends")
            handle.copied_tokens = end
        return handle.copied_tokens >= end

    def keep(self, handle: JobHandle) -> str | None:
        """Saves the first choice's end state. A failure here costs the next request time and this one nothing."""
        first, admission = handle.sequences[0], handle.admission
        if admission is None or not handle.job.keep:
            return None
        try:
            terminal = self._cache.commit(admission, first.ids_in_state(), first.state)
        except (RuntimeError, ValueError, MemoryError):
            _log.exception("keeping the end state failed")
            return None
        return terminal.cache_id if terminal is not None else None

    def keep_unit(self, handle: JobHandle) -> None:
        """Saves the state on its way through the prompt, where it cannot be cut later."""
        state, admission = handle.state, handle.admission
        if state is None or admission is None:
            return
        while handle.units and handle.units[0] <= state.length:
            length = handle.units.pop(0)
            if length != state.length:
                continue
            try:
                self._cache.commit_unit(admission, handle.job.prompt_ids[:length], state)
            except (RuntimeError, ValueError, MemoryError):
                _log.exception("keeping the state after %d tokens failed", length)
