"""A state that went to SSD and came back, in this process or in a new one, goes on with the bits of a cold prompt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zllm_ref.runtime.model import Model

from ..restored_process import digest, tiered_cache, whole_prompt
from ..subjects import DTYPES, prompt_ids, run_whole, subject
from ..test_restored_equals_cold import FOLLOWING, continue_from_disk, save
from .families import FAMILIES, assert_same_run


@pytest.mark.parametrize("saved", [256, 301])
def test_a_restored_state_goes_on_like_a_cold_prompt(family: Model, tmp_path: Path, saved: int) -> None:
    ids = prompt_ids(family, saved + FOLLOWING, seed=30)
    save(family, tmp_path, ids[:saved])

    went_on = continue_from_disk(family, tiered_cache(family, tmp_path, num_stages=2), ids, expected_cached=saved)

    assert_same_run(family, went_on, run_whole(family, ids))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "llama"])
def test_a_new_process_goes_on_like_the_old_one(name: str, dtype: str, device: str, tmp_path: Path) -> None:
    model = subject(FAMILIES[name], dtype, device=device)
    ids = whole_prompt(model)
    save(model, tmp_path, ids[:200])

    command = [sys.executable, "-m", "equivalence.restored_process", FAMILIES[name], dtype, device, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["200", digest(model, run_whole(model, ids), 200)]
