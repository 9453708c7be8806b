"""A process that is killed while it answers and writes leaves a directory from which every answer is the cold one.

kill -9 at random moments, on the real disk with its syncs: 12 times here, 200 times at night (`ci/cache-kills`). What was
reported as written before the kill must be found again; whatever is found must give the bits of a prompt computed from its start.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.state import SessionState

from .bits import assert_bits_equal
from .conftest import EXAMPLES
from .restored_process import tiered_cache
from .subjects import logits, prompt_ids, run_whole, subject
from .test_restored_equals_cold import continue_from_disk

SAVED, FOLLOWING = 140, 20
NUM_PROMPTS = 12


def prompt(model: Model, number: int) -> list[int]:
    """Two families of prompts, so that snapshots share blocks."""
    return [*prompt_ids(model, 128, seed=number % 2), *prompt_ids(model, SAVED - 128 + FOLLOWING, seed=100 + number)]


def save_all(model: Model, root: Path, saved: list[tuple[list[int], SessionState]], report: int) -> None:
    """One byte when the directory is open, one more for each snapshot that is on disk."""
    cache = tiered_cache(model, root)
    os.write(report, b"o")
    for tokens, state in saved:
        ids = np.array(tokens, dtype=np.int32)
        admission = cache.admit("", ids, reserve_bytes=model.state.session_bytes(SAVED))
        assert admission is not None
        assert cache.commit(admission, ids, state) is not None
        cache.release(admission)
        while cache.pump() or cache.is_writing:
            pass
        os.write(report, b"s")
    cache.store.close()


def save_until_killed(model: Model, root: Path, saved: list[tuple[list[int], SessionState]], report: int) -> None:
    """In the child, which never comes back."""
    try:
        save_all(model, root, saved, report)
        time.sleep(60)
    finally:
        os._exit(1)


def test_answers_after_a_kill_are_cold_answers(tmp_path: Path) -> None:
    model = subject("tiny-llama", "float32")
    prompts = [prompt(model, number) for number in range(NUM_PROMPTS)]
    cold = [run_whole(model, ids) for ids in prompts]
    saved = [(ids[:SAVED], run_whole(model, ids[:SAVED]).state) for ids in prompts]
    started = time.perf_counter()
    with open(os.devnull, "wb") as nobody:
        save_all(model, tmp_path / "whole", saved, nobody.fileno())
    whole_seconds = time.perf_counter() - started
    generator = random.Random(7)
    num_kills = 200 if EXAMPLES.max_examples > 100 else 12
    num_reported = 0
    for kill in range(num_kills):
        root = tmp_path / str(kill)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            save_until_killed(model, root, saved, writer)
        os.close(writer)
        os.read(reader, 1)
        reported = sum(len(os.read(reader, 1)) for _ in range(generator.randrange(NUM_PROMPTS)))
        time.sleep(generator.random() * 1.5 * whole_seconds / NUM_PROMPTS)  # somewhere within the next save
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reported += len(os.read(reader, 4096))
        os.close(reader)

        for number, ids in enumerate(prompts):
            cache = tiered_cache(model, root)
            found = cache.lookup("", np.array(ids, dtype=np.int32))
            length = found.length if found is not None else 0
            if number < reported:
                assert length == SAVED, f"kill {kill}: snapshot {number} was reported as written"
            if length:
                run = continue_from_disk(model, cache, ids, expected_cached=length)
                rows = run.hidden.shape[0]
                assert_bits_equal("logits", logits(model, run.hidden), logits(model, cold[number].hidden[-rows:]))
                for tensor in model.state.tensors:
                    assert_bits_equal(tensor.name, run.state_rows(tensor.name), cold[number].state_rows(tensor.name))
            cache.store.close()
        num_reported += reported
    assert num_reported < num_kills * NUM_PROMPTS, "no kill came in the midst of anything"
