"""The cache: which saved states exist, who uses them, and how many bytes they take.

It knows token ids, bytes and opaque payloads. A *terminal* is the state in which a successful request ended; its rows live as
immutable *blocks* of a fixed number of tokens in a *prefix graph*, so that conversations with a common beginning share it.
A running request owns its own contiguous session buffer: a hit names the blocks to copy into it, a commit copies the rows
that the graph lacks out of it. Payloads are never looked into; the runtime makes them and the runtime reads them.

It must never know: tensors or torch, the model's name or shape, protocols, roles, tools, text. It decides nothing about what
a request means, and it owns no thread: every object here is called from one thread only.

    block.py         what a state looks like to the cache, and what a hit hands out
    key.py           namespace and identity as tagged, length-prefixed bytes
    prefix_graph.py  blocks and terminals, their references and pins
    lookup.py        the longest reusable prefix of a prompt
    admission.py     who may start, and what was promised to him
    resident.py      the budget: lookup, admit, commit, release, evict
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
