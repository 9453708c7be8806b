"""Which states on the way are kept, and the rule of hosted caches that follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.toy_server import ToyServer
from tests.cache.toy_state import RINGS
from zllm_ref.cache.units import UnitPolicy

A, B, C = list(range(20)), list(range(100, 120)), list(range(200, 220))


def test_units_reproduce_the_hosted_rule(tmp_path: Path) -> None:
    """P+R after P+Q misses, because no unit ends with P; it leaves one there, and P+S hits it."""
    options = {"whole_states_only": True, "units": UnitPolicy(end_of_prompt=True, common_prefix=True)}
    server = ToyServer(tmp_path, options=options)
    p, q, r, s = list(range(13)), [51, 52, 53], [61, 62, 63, 64], [71, 72]

    reused = [server.ask([*p, *tail], [9])[0] for tail in (q, q, r, s)]
    changed = server.ask([*p[:12], 99, *s], [9])[0]

    assert reused == [0, len(p) + len(q) - 1, 0, len(p)]
    assert changed == 0


@pytest.mark.parametrize(
    ("policy", "lengths"),
    [
        (UnitPolicy(), (40, 99)),
        (UnitPolicy(end_of_prompt=False), (40,)),
        (UnitPolicy(common_prefix=False), (99,)),
        (UnitPolicy(interval_tokens=30), (30, 40, 60, 90, 99)),
        (UnitPolicy(interval_tokens=30, least_tokens=50), (60, 90, 99)),
        (UnitPolicy(end_of_prompt=False, common_prefix=False), ()),
    ],
)
def test_each_kind_of_unit_is_a_switch(policy: UnitPolicy, lengths: tuple[int, ...]) -> None:
    assert policy.planned(prompt_length=100, reused_length=0, common_length=40) == lengths
    assert all(length > 60 for length in policy.planned(100, 60, 40))


def test_without_the_unit_at_its_end_an_answer_is_not_kept(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, RINGS, options={"units": UnitPolicy(end_of_answer=False)})

    _, terminal, _ = server.ask(A, [7])

    assert terminal is None
    assert server.ask(A, [7])[0] == 19
