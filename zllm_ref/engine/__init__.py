"""THE BRIDGE: the one room that knows words and numbers.

    Request ─ dialect ─▶ segments ─ vocabulary ─▶ ids ──┐
    tool choice, formats, guard ─ fence ────────────────┼─▶ GenerationJob ─▶ RuntimeLoop
    sampling, limits ───────────────────────────────────┘                       │ ids
    events ◀─ answer (detokenizer, parser, stop strings) ◀─ listening ◀─────────┘

What goes down is ids, limits and masks; what comes up is ids. Nothing else crosses.

    bridge.py      Engine: submit and count_tokens; observer.py  who looks on beside the client
    loading.py     a model with everything around it, from settings; reading.py  the model itself; drafters.py  who guesses for it
    listening.py   hears the runtime (ids), tells the server (events)
    answer.py      one choice's ids into events, words only; call_check.py  judges a call that no fence held whole
    stop_strings.py  where the text ends; content_logprobs.py  log probabilities beside the text
    script.py      what the scripted model says; minimal_value.py  the smallest value that fits a schema
    replay_store.py  own answers by digest, in one file; figures.py  what the cache and the drafts say of themselves
"""

from zllm_ref.engine.bridge import Engine
from zllm_ref.engine.loading import Loaded, load

__all__ = ["Engine", "Loaded", "load"]
