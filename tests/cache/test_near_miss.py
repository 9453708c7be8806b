"""Prompts that nearly had a hit: found, shown around the fork, and never reused beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.cache.toy_server import ToyServer
from zllm_ref.cache.near_miss import NearMissPolicy, find_near_miss

A, B, C = list(range(20)), list(range(100, 120)), list(range(200, 220))


WATCHFUL = {"near_miss_policy": NearMissPolicy(least_common_tokens=100)}


def clock(minute: int, length: int) -> list[int]:
    """A conversation whose 20th token is a clock."""
    return [*range(1000, 1020), 5000 + minute, *range(2000, 2000 + length - 21)]


def test_a_clock_in_the_system_prompt_is_a_correct_miss_and_one_near_miss_that_shows_it(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, options=WATCHFUL)
    server.ask(clock(0, 300))

    reused, _, _ = server.ask([*clock(1, 300), 7, 8, 9])

    assert reused == 20
    (miss,) = server.near_misses
    assert (miss.fork, miss.saved_length, miss.common_tokens, miss.lost_tokens) == (20, 300, 299, 280)
    assert miss.saved_window[miss.fork - miss.window_start] == 5000
    assert miss.prompt_window[miss.fork - miss.window_start] == 5001


def test_a_clock_at_the_tail_is_a_hit_and_no_near_miss(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, options=WATCHFUL)
    history = list(range(300))
    server.ask(history)

    assert server.ask([*history, 5001, 7])[0] == 300
    assert server.near_misses == []


def test_a_last_turn_that_is_rendered_anew_is_reused_up_to_the_fork_and_reported(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, options=WATCHFUL)
    history, thinking, answer = list(range(300)), [7001, 7002], list(range(8000, 8025))
    server.ask([*history, *thinking], answer)

    echoed = server.ask([*history, *thinking, *answer, 1])[0]
    dropped = server.ask([*history, *answer, 2])[0]

    assert echoed == 327
    assert dropped == 300
    (miss,) = server.near_misses
    assert miss.fork == 300
    assert miss.prompt_window[32:35] == (8000, 8001, 8002)


def test_a_near_miss_is_found_on_ssd_too(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, options=WATCHFUL)
    server.ask(clock(0, 300))
    server = server.restart()

    server.ask(clock(1, 300))

    assert [miss.fork for miss in server.near_misses] == [20]


@pytest.mark.parametrize(
    ("saved", "prompt", "reused", "expected"),
    [
        (range(3000), [*range(500), 9, 9, 9, *range(500, 3000), 4], 500, (500, 3000)),  # an insertion
        (range(3000), [*range(500), *range(520, 3000), 4, 5], 500, (500, 2980)),  # a deletion
        (range(3000), [*range(2900), 1, 2], 2900, (2900, 2900)),  # the end differs
        (range(3000), range(2900), 2899, None),  # a shorter prompt, nothing differs
        (range(3000), [*range(3000), 1], 3000, None),  # reused whole
        (range(3000), [*range(2900), 1, 2], 2901, None),  # another state gave more
        (range(3000), [*range(2900), 1, 2], 2000, (2900, 2900)),  # a state that cannot be cut there
        (range(3000), [*range(2600), *range(9000, 9400)], 2600, None),  # less than 90 % of the saved state
        (range(1100), [*range(1024), 1, 2], 1024, None),  # not more than 1,024 tokens
        (range(1100), [*range(1025), 1, 2], 1025, (1025, 1025)),
        (range(4000), range(20_000, 24_000), 0, None),
    ],
)
def test_what_counts_as_a_near_miss(
    saved: Sequence[int], prompt: Sequence[int], reused: int, expected: tuple[int, int] | None
) -> None:
    miss = find_near_miss(
        NearMissPolicy(),
        cache_id="cache_a",
        namespace="",
        saved=np.array(saved, dtype=np.int32),
        prompt=np.array(prompt, dtype=np.int32),
        reused_length=reused,
    )

    assert (miss and (miss.fork, miss.common_tokens)) == expected
