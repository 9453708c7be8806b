"""Against an outsider: every model family and `transformers`, the same folder, the same logits up to rounding."""
