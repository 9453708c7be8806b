"""The numbers: ids in, tensors, ids out.

Knows: models and the state tensors they declare, sessions, steps (prefill chunk, decode round), sampling, the numerics
contract. Must never know: text, roles, tools, protocols, dialects. What others decide for it (a fence, a script) comes
through `ports.py`.

Reading order: numerics → state → step → attention → models/llama → sequence → sampler → decode → schedule → rounds → keeping →
loop; then, for the models that need more: latent_attention, indexer, router, experts, window_attention, compressor, history,
hyper_connection; for drafts: draft, verify, speculation; for snapshots: restore, ssd_restores.
"""
