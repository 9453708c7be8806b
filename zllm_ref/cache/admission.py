"""What a request was promised when it was let in: a hit to start from, bytes to run in, and whether its end will be kept."""

from __future__ import annotations

from dataclasses import dataclass

from zllm_ref.cache.block import Hit
from zllm_ref.cache.restore import RestorePlan


@dataclass(frozen=True)
class Admission:
    """A request's place in the budget, from `PrefixCache.admit` until `PrefixCache.release`.

    `reserved_bytes` are for the session buffer over the whole reserved length, decode growth included: an admitted request
    can always finish. `keep_bytes` are set aside for the rows that a commit will copy out; `will_keep` says that they could
    be, and then the commit is certain to find room for what the session can hold.
    """

    cache_id: str
    """The name of the terminal to come, unique, planned now so that an answer can carry it from its first event on."""
    namespace: str
    hit: Hit | None
    reserved_bytes: int
    keep_bytes: int
    will_keep: bool
    units: tuple[int, ...] = ()
    """Lengths of the prompt at which the prefill should stop for a `commit_unit`; empty where states can be cut anywhere."""
    restore: RestorePlan | None = None
    """What must be read from SSD before `hit.length` tokens are there; `hit.blocks` are then the resident part alone."""


class AdmissionImpossible(ValueError):
    """The request needs more bytes than the whole budget has: waiting would never help. The caller's fault, not ours."""
