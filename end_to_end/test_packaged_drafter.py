"""The drafter that comes for the default model: as good on subjects that no training has seen as it is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from zllm_ref.__main__ import main
from zllm_ref.runtime.draft.dspark.weights import PACKAGED, fresh_weights, read_weights

WANTED = ["draft", "eval", "--prompts", "8", "--new-tokens", "64", "--lanes", "8", "--at-least", "1.8"]
"""The whole test has 48 prompts, longer answers, and an aim of 2.0; this one scatters more."""


def test_the_packaged_drafter_guesses_well_and_changes_no_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WANTED) == 0

    printed = capsys.readouterr().out
    assert "accepted length" in printed
    assert "the same tokens in every answer" in printed


def test_weights_that_learnt_nothing_are_told_from_it(tmp_path: Path) -> None:
    (packaged,) = PACKAGED.glob("*.safetensors")
    weights = read_weights(packaged)
    ids = weights.tensors["drafted_ids"].tolist()
    fresh_weights(weights.shape, ids, seed=0, target=weights.target).save(tmp_path / "fresh.safetensors")

    assert main([*WANTED, "--no-compare", "--draft-model", str(tmp_path / "fresh.safetensors")]) == 1
