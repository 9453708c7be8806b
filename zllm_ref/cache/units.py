"""What becomes a unit: the lengths of a prompt at which its state is worth keeping whole.

A state that cannot be cut (rings, open compressor windows) is reused only at a length at which somebody kept it. So the
lengths are chosen before the prompt is computed, and the prefill stops there for a moment:

    prompt   |—— shared with another request ——|—————— interval ——————|————— all but the last token |
             0                              common                 k × n                           n-1
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UnitPolicy:
    """Which units are kept; each a switch. Nothing here changes an answer, only what the next request can reuse."""

    end_of_prompt: bool = True
    """All of the prompt but its last token, so that the same prompt again finds it."""
    end_of_answer: bool = True
    common_prefix: bool = True
    """Where a prompt forks from a saved state: the second request pays, the third one finds it."""
    interval_tokens: int = 0
    """Every so many tokens of a long prompt; 0: never."""
    least_tokens: int = 1
    """Shorter units are not worth their fixed tensors."""

    def planned(self, prompt_length: int, reused_length: int, common_length: int) -> tuple[int, ...]:
        """The lengths to keep on the way, ascending: all beyond what is reused, all short of the whole prompt."""
        lengths = set()
        if self.end_of_prompt:
            lengths.add(prompt_length - 1)
        if self.common_prefix:
            lengths.add(common_length)
        if self.interval_tokens:
            lengths.update(range(self.interval_tokens, prompt_length, self.interval_tokens))
        least = max(self.least_tokens, reused_length + 1)
        return tuple(sorted(length for length in lengths if least <= length < prompt_length))
