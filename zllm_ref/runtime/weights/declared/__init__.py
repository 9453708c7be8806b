"""One file an architecture: how its config is read and which parameters follow from it.

Every file has the same skeleton: `normalise(where, config)` writes out every default and refuses what the model cannot
compute (what it returned may be given to it again), `parameter_shapes(config)` names every tensor that a file must have,
and, where there are any, `draft_shapes(config)` the ones that it may have: the layers that predict further tokens.

Knows names and shapes. Must never know how a model computes.
"""
