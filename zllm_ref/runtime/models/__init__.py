"""One file a model family: plain torch, the layers spelled out, the state declared.

Every file has the same skeleton: a frozen config read from Hugging Face names, the layer weights, the model with
`declare_state`, `forward(step) → hidden rows`, `logits(rows)`. What they share (norms, rotation, attention over a state
tensor, the numerics) is imported from the runtime; nothing is hooked in from outside.
"""
