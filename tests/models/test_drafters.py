"""Drafters by themselves: what they hold, how they catch up, what they do when they break."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from zllm_ref.runtime.draft.guarded import GuardedDrafter
from zllm_ref.runtime.draft.mtp import MtpFactory
from zllm_ref.runtime.draft.small_model import CATCH_UP_ROWS, SmallModelDrafter, SmallModelFactory
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.weights import seeded_checkpoint

NO_ROWS = torch.zeros(0, 1)


def model_of(name: str, *, drafting: bool = False) -> Model:
    return build_model(seeded_checkpoint(name, torch.float32), Numerics(torch.float32), drafting=drafting)


@torch.inference_mode()
def test_a_small_model_catches_up_in_chunks_and_then_guesses_as_if_it_had_followed() -> None:
    model = model_of("tiny-llama")
    ids = torch.randint(0, 256, (2 * CATCH_UP_ROWS + 40,), generator=torch.Generator().manual_seed(1)).tolist()
    late = SmallModelDrafter(model, ids, 2000, 256)
    early = SmallModelDrafter(model, ids[:1], 2000, 256)

    proposals = []
    for position in range(1, len(ids)):
        early.follow(position - 1, NO_ROWS, [ids[position]])
        if position % 50 == 0:
            early.propose(2)
    for _ in range(4):
        proposals.append(late.propose(4))

    assert proposals[:2] == [[], []]
    assert len(proposals[2]) == 4
    assert proposals[2] == proposals[3] == early.propose(4)


def test_the_bytes_of_a_small_models_session_are_the_ones_that_are_accounted() -> None:
    model = model_of("tiny-llama")
    factory = SmallModelFactory(model, 256)
    for tokens in (5, 512, 700, model.context_length, 2 * model.context_length):
        target = SessionState(model_of("tiny-glm4-moe").state, tokens, torch.device("cpu"))

        assert factory.begin(target, [1, 2]).nbytes == factory.session_bytes(tokens)


def test_a_model_without_further_layers_cannot_draft() -> None:
    model = model_of("tiny-glm4-moe")
    factory = MtpFactory(model, 256)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="allowed one that was built with drafting"):
        factory.begin(SessionState(model.state, 10, model.device), [1])


class Broken:
    """Raises once, and must not be asked again."""

    calls = 0

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        self.calls += 1
        raise IndexError("planted")

    def propose(self, limit: int) -> list[int]:
        return [1] * limit

    def chances(self) -> Sequence[float]:
        return (0.5,)

    def judge(self, proposed: int, accepted: int) -> None:
        raise AssertionError("it is asked no more")


def test_a_drafter_that_broke_is_silent() -> None:
    broken = Broken()
    guarded = GuardedDrafter(lambda: broken)

    assert (guarded.propose(2), guarded.chances()) == ([1, 1], (0.5,))
    guarded.follow(0, NO_ROWS, [])
    guarded.follow(0, NO_ROWS, [])
    guarded.judge(1, 1)

    assert (guarded.propose(2), guarded.chances()) == ([], ())
    assert broken.calls == 1
