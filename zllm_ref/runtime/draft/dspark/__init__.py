"""DSpark: a drafter that reads the target's own rows and guesses a whole block in one parallel pass.

A backbone over a few of the target's layers gives a row for every place of the block at once; a small Markov head reads the
guesses off one after the other, each with the guess before it; a confidence head says how likely each is to stand. How much
of a block is verified is the planner's choice (`draft.length`), from these chances and the measured cost of a step.

Knows target rows, ids and one advisory state tensor. Must never decide a token, and knows no text: prompts for its training
come in as ids.
"""

from zllm_ref.runtime.draft.dspark.drafter import DsparkDrafter
from zllm_ref.runtime.draft.dspark.factory import Dspark, default_weights, load_dspark, seeded_dspark

__all__ = ["Dspark", "DsparkDrafter", "default_weights", "load_dspark", "seeded_dspark"]
