"""The cache: which saved states exist, who uses them, and how many bytes they take.

It knows token ids, bytes and opaque payloads. A *terminal* is the state in which a successful request ended; its rows live as
immutable *blocks* of a fixed number of tokens in a *prefix graph*, so that conversations with a common beginning share it.
A running request owns its own contiguous session buffer: a hit names the blocks to copy into it, a commit copies the rows
that the graph lacks out of it. Payloads are never looked into; the runtime makes them and the runtime reads them.

It must never know: tensors or torch, the model's name or shape, protocols, roles, tools, text. It decides nothing about what
a request means. Every object here is called from one thread only, the one that runs the device; file work goes to workers that
are handed in, and they touch nothing but files and immutable payloads.

    block.py         what a state looks like to the cache, and what a hit hands out
    key.py           namespace and identity as tagged, length-prefixed bytes
    prefix_graph.py  blocks and terminals, their references and pins
    lookup.py        the longest reusable prefix of a prompt
    admission.py     who may start, and what was promised to him
    units.py         which states on the way are kept, where states cannot be cut
    resident.py      the resident tier: lookup, admit, commit, release, evict within one budget
    snapshot.py      the ports of the other tier: a state as flat parts, and where they go
    ssd/             the directory of snapshots
    restore.py       a snapshot on its way into a session, stage by stage
    rates.py         read or compute: by measured speed
    near_miss.py     prompts that nearly had a hit, and near_miss_watch.py, which looks for them
    counts.py        what happened so far
    tiered.py        both tiers behind the face of the resident one
"""

from zllm_ref.cache.admission import Admission, AdmissionImpossible
from zllm_ref.cache.block import BlockUse, Hit, StateLayout, StateSource, Terminal, TokenIds
from zllm_ref.cache.key import tagged_fields
from zllm_ref.cache.resident import PrefixCache

__all__ = [
    "Admission",
    "AdmissionImpossible",
    "BlockUse",
    "Hit",
    "PrefixCache",
    "StateLayout",
    "StateSource",
    "Terminal",
    "TokenIds",
    "tagged_fields",
]
