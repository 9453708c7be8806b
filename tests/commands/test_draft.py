"""`draft`: prompts that no training has seen, a drafter made and tested from the command line, and its no in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from zllm_ref.__main__ import main
from zllm_ref.commands.draft_prompts import KINDS, Purpose, draft_prompts

TINY = ["--model", "tiny-llama", "--new-tokens", "8"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drafter for the tiny model, trained for two steps."""
    path = tmp_path_factory.mktemp("draft") / "weights.safetensors"
    assert main(["draft", "train", *TINY, "--prompts", "12", "--steps", "2", "--out", str(path)]) == 0
    return path


def test_each_purpose_speaks_of_subjects_of_its_own() -> None:
    prompts = {purpose: draft_prompts(2000, 1, purpose) for purpose in Purpose}

    assert all(len(set(made)) == len(made) > 50 for made in prompts.values())
    for kind in KINDS:
        spoken = [
            {subject for subject in kind.subjects for form in kind.forms if form.format(subject) in made}
            for made in prompts.values()
        ]
        assert sum(map(len, spoken)) == len(set().union(*spoken)) == len(kind.subjects)


def test_the_same_seed_gives_the_same_prompts() -> None:
    assert draft_prompts(50, 3, Purpose.TEST) == draft_prompts(50, 3, Purpose.TEST)
    assert draft_prompts(50, 3, Purpose.TEST) != draft_prompts(50, 4, Purpose.TEST)


def test_an_evaluation_says_length_places_calibration_and_that_tokens_are_the_same(
    weights: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")

    code = main(["draft", "eval", *TINY, "--prompts", "4", "--draft-model", str(weights), "--at-least", "1.0"])

    printed = capsys.readouterr().out
    assert code == 0
    for expected in ("accepted length", "acceptance by place", "reliability", "expected calibration error", "the same tokens"):
        assert expected in printed


def test_an_accepted_length_below_the_wanted_one_is_a_failure(weights: Path) -> None:
    wanted = ["--at-least", "7", "--no-compare"]

    assert main(["draft", "eval", *TINY, "--prompts", "2", "--draft-model", str(weights), *wanted]) == 1


def test_a_drafter_that_is_not_there_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    assert main(["draft", "eval", *TINY, "--draft-model", str(tmp_path / "absent")]) == 2
    assert main(["draft", "eval", *TINY]) == 2
    assert main(["draft", "eval", *TINY, "--draft", "none"]) == 2
    assert main(["draft", "train", "--model", "scripted", "--prompts", "2"]) == 2

    printed = capsys.readouterr().out
    assert "no such file" in printed
    assert "no weights for tiny-llama" in printed
    assert "shares its embedding" in printed
