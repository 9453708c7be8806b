"""Two tiers: what was evicted comes back, from this process or the one before; nothing is lost or mixed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cache.toy_server import ToyServer
from tests.cache.toy_state import LINEAR, RINGS
from zllm_ref.cache import StateLayout, tagged_fields

LAYOUTS = pytest.mark.parametrize("layout", [LINEAR, RINGS], ids=["linear", "rings"])
A, B, C = list(range(20)), list(range(100, 120)), list(range(200, 220))


@LAYOUTS
def test_a_new_process_continues_where_the_old_one_was(tmp_path: Path, layout: StateLayout) -> None:
    server = ToyServer(tmp_path, layout)
    _, terminal, _ = server.ask(A, [50, 51])
    assert terminal is not None

    again = server.restart()

    assert again.ask([*A, 50, 51, 60])[0::2] == (22, "ssd")
    assert again.ask([*A, 50, 51, 60, 61])[0::2] == (23, "resident"), "the restored state is resident now"


def test_rounds_go_on_counting_over_a_restart(tmp_path: Path) -> None:
    server = ToyServer(tmp_path)
    rounds = []
    for length in (20, 24, 28):
        _, terminal, _ = server.ask(range(length))
        assert terminal is not None
        rounds.append(terminal.round)
        server = server.restart()

    assert rounds == [0, 1, 2]
    assert [entry.manifest.round for entry in server.store.entries.values()] == [0, 1, 2]


def test_after_a_restart_the_exact_id_finds_its_snapshot(tmp_path: Path) -> None:
    server = ToyServer(tmp_path)
    _, short, _ = server.ask(A[:10])
    server.ask(B)
    server.ask(A)
    assert short is not None
    again = server.restart()

    hit = again.cache.lookup("", np.array([*A, 1], dtype=np.int32), cache_id=short.cache_id)

    assert hit is not None
    assert (hit.length, hit.cache_id, hit.tier) == (10, short.cache_id, "ssd")


@LAYOUTS
@pytest.mark.parametrize("write_behind", [True, False])
def test_what_was_evicted_comes_back_from_ssd(tmp_path: Path, layout: StateLayout, write_behind: bool) -> None:
    server = ToyServer(tmp_path, layout, capacity_bytes=3500, options={"write_behind": write_behind})
    for prompt in (A, B, C):
        server.ask(prompt, [7])

    results = [server.ask([*prompt, 7, 8])[0::2] for prompt in (A, B, C)]

    assert [length for length, _ in results] == [21, 21, 21]
    assert "ssd" in {tier for _, tier in results}
    assert server.cache.counts.evictions > 0
    assert server.cache.ssd_counts.states_lost == 0


def test_a_snapshot_beside_unrelated_resident_states_is_read_whole(tmp_path: Path) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    server = server.restart()
    server.ask(B)

    hit = server.cache.lookup("", np.array([*A, 1], dtype=np.int32))
    admission = server.admit([*A, 1])

    assert hit is not None
    assert hit.blocks == ()

    assert admission is not None
    assert admission.hit is not None
    assert (admission.hit.blocks, admission.hit.length) == ((), 20)
    assert server.fill(admission, [*A, 1]) == 20
    server.cache.release(admission)
    server.cache.check()


@LAYOUTS
def test_a_damaged_snapshot_is_a_miss_and_then_written_anew(tmp_path: Path, layout: StateLayout) -> None:
    server = ToyServer(tmp_path, layout).restart()
    server.ask(A)
    server = server.restart()
    for chunk in (tmp_path / "chunks").iterdir():
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"\xee")

    assert server.ask([*A, 1])[0::2] == (0, None)
    server.cache.check()
    assert server.cache.ssd_counts.restores_refused == 1
    server = server.restart()

    assert server.ask([*A, 1, 2])[0::2] == (21, "ssd")


def test_blocks_that_are_resident_are_not_read_again(tmp_path: Path) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    server = server.restart()
    server.ask(A[:9])

    admission = server.admit([*A, 5])

    assert admission is not None
    assert admission.restore is not None
    assert [chunk.start for chunk in admission.restore.chunks] == [8, 12, 16]
    assert admission.hit is not None
    assert [use.start for use in admission.hit.blocks] == [0, 4]
    assert server.fill(admission, [*A, 5]) == 20
    server.cache.release(admission)
    server.cache.check()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"adapter": "digest-a", "scale": "1"}, {"adapter": "digest-b", "scale": "1"}),
        ({"adapter": "digest-a", "scale": "1"}, {"adapter": "digest-a", "scale": "0.5"}),
        ({"adapter": "digest-a", "scale": "1"}, {}),
        ({"adapter": "X"}, {"salt": "X"}),
        ({"organisation": "org_1", "salt": "2345"}, {"organisation": "org_12345", "salt": ""}),
    ],
)
def test_another_adapter_scale_salt_or_tenant_misses_in_both_tiers_and_the_same_hits(
    tmp_path: Path, first: dict[str, str], second: dict[str, str]
) -> None:
    server = ToyServer(tmp_path)
    server.ask(A, namespace=tagged_fields(first))

    assert server.ask(A, namespace=tagged_fields(second))[0] == 0
    again = server.restart(identity="model")
    other = tagged_fields({**second, "unused": ""})
    assert again.ask(A, namespace=other)[0] == 0
    assert again.ask(A, namespace=tagged_fields(first))[0::2] == (19, "ssd")


def test_other_weights_or_rotation_miss_and_the_first_configuration_hits_again(tmp_path: Path) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    for identity in ("model, rope factor 2", "model, one weight changed", "model, float32"):
        server = server.restart(identity=identity)
        assert server.ask(A)[0] == 0
    server = server.restart(identity="model")

    assert server.ask(A)[0::2] == (19, "ssd")


def test_the_inspector_sees_both_tiers_as_plain_data(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, options={"write_behind": False})
    server.ask(A)
    server.cache.write_all()
    server.settle()
    server.ask(B)

    shot = server.cache.snapshot()

    assert [(one["length"], one["is_dirty"]) for one in shot["terminals"]] == [(20, False), (20, True)]
    assert [(one["length"], one["generation"], one["readers"]) for one in shot["ssd"]["snapshots"]] == [(20, 1, 0)]
    assert shot["free_bytes"] + shot["resident_bytes"] + shot["pinned_bytes"] + shot["reserved_bytes"] == shot["capacity_bytes"]
    assert json.loads(json.dumps(shot)) == shot
