"""What is kept is copied a little at a time, so that no stream waits for the state of somebody else's long prompt."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.stub_model import VOCAB, HashModel, Heard, assert_idle, continuation, job, new_loop, run, step
from zllm_ref.runtime.state import BLOCK_TOKENS, SessionState

LONG = np.random.default_rng(3).integers(0, VOCAB, 9 * BLOCK_TOKENS + 50).tolist()


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of every copy that was made; two blocks are the most beside one round."""
    sizes: list[int] = []
    copy = SessionState._copy

    def counted(state: SessionState, start: int, end: int) -> object:
        sizes.append(end - start)
        return copy(state, start, end)

    monkeypatch.setattr(SessionState, "_copy", counted)
    monkeypatch.setattr("zllm_ref.runtime.keeping.COPY_BYTES", 2 * BLOCK_TOKENS * HashModel().state.bytes_per_token)
    return sizes


def test_a_long_state_is_copied_in_pieces_while_others_speak_and_is_the_same_state(copied: list[int]) -> None:
    loop = new_loop()
    stream, long = Heard(), Heard()
    handle = loop.submit(job([1, 2], 60, listener=stream))
    loop.submit(job(LONG, 1, listener=long))
    largest = 0
    while not long.closed:
        before, said = len(copied), len(stream.ids())
        step(loop)
        largest = max(largest, sum(copied[before:]))
        assert len(stream.ids()) - said <= 1
    handle.cancel()
    loop.run_until_idle()

    assert largest <= 2 * BLOCK_TOKENS + 50, "at most two blocks and the rest of the last one"
    assert sum(copied) == len(LONG), "and nothing twice"
    assert long.ids() == continuation(LONG, 1)
    again = run(loop, [*LONG, *long.ids(), 3])
    assert again.report is not None
    assert again.report.cached_tokens == len(LONG)
    assert again.ids() == continuation([*LONG, *long.ids(), 3], 5)
    assert_idle(loop)


def test_a_copy_that_fails_beside_the_work_of_others_ends_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no room for a copy")

    monkeypatch.setattr(SessionState, "copy_ahead", full)
    loop = new_loop()
    stream, long = Heard(), Heard()
    loop.submit(job([1, 2], 30, listener=stream))
    loop.submit(job(LONG, 3, listener=long))
    loop.run_until_idle()

    assert (long.ids(), long.failed) == (continuation(LONG, 3), [])
    assert (stream.ids(), stream.failed) == (continuation([1, 2], 30), [])
    assert_idle(loop)


def test_where_nobody_else_speaks_the_answer_ends_at_once(copied: list[int]) -> None:
    model = HashModel()
    loop = new_loop(model)

    heard = run(loop, LONG, 2)

    assert heard.closed
    assert len(model.steps) - len([rows for rows in model.steps if rows[0] > 1]) == 1, "no round more than the answer needs"
    assert sum(copied) == len(LONG) + 1


def test_what_a_hit_brought_from_memory_is_not_copied_again(copied: list[int]) -> None:
    loop = new_loop()
    run(loop, LONG, 1)
    copied.clear()
    stream = Heard()
    handle = loop.submit(job([1, 2], 60, listener=stream))
    longer = [*LONG, *continuation(LONG, 1), *LONG[: 2 * BLOCK_TOKENS]]

    second = Heard()
    loop.submit(job(longer, 1, listener=second))
    while not second.closed:
        step(loop)
    handle.cancel()
    loop.run_until_idle()

    assert second.report is not None
    assert second.report.cached_tokens == len(LONG)
    assert sum(copied) == len(longer) - 9 * BLOCK_TOKENS


def test_a_job_that_keeps_nothing_copies_nothing(copied: list[int]) -> None:
    loop = new_loop()
    loop.submit(job([1, 2], 20))

    run(loop, LONG, 1, keep=False)

    assert sum(copied) <= 2 + 20


def test_a_state_that_goes_back_forgets_what_was_copied_of_the_rows_behind(copied: list[int]) -> None:
    """The rows are written anew: a copy of the old ones would be a wrong state."""
    model = HashModel()
    state = SessionState(model.state, 4 * BLOCK_TOKENS, model.device)
    state.prepare(3 * BLOCK_TOKENS)
    state.length = 3 * BLOCK_TOKENS
    for block in range(3):
        state.copy_ahead(block * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS)
    state.rollback(2 * BLOCK_TOKENS - 1)
    state.tensors["ids"][0, BLOCK_TOKENS : 3 * BLOCK_TOKENS] = 7

    first, second = state.copy_rows(0, BLOCK_TOKENS), state.copy_rows(BLOCK_TOKENS, 2 * BLOCK_TOKENS)

    assert len(copied) == 4, "the first block's copy is still right"
    assert not first["ids"].any()
    assert (second["ids"] == 7).all()
