"""Two tiers: what was evicted comes back, from this process or the one before; nothing is lost, mixed or waited for in vain."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.cache.toy_server import HeldWorker, ToyServer
from tests.cache.toy_state import LINEAR, RINGS, ToyCodec, ToyTarget, row
from zllm_ref.cache import StateLayout, tagged_fields
from zllm_ref.cache.near_miss import NearMissPolicy, find_near_miss
from zllm_ref.cache.restore import Restore, RestoreFailed
from zllm_ref.cache.ssd.files import Files
from zllm_ref.cache.ssd.plan import plan_restore
from zllm_ref.cache.units import UnitPolicy

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


def test_a_dirty_victim_is_written_before_it_is_freed_and_the_request_waits_for_that(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, capacity_bytes=2500, options={"write_behind": False}, writer=writer)
    server.ask(A)

    assert server.admit(B, growth=5) is None, "found, and to be demoted first"
    assert len(writer.waiting) == 1
    assert server.cache.pinned_bytes > 0, "what is being written is no victim"
    assert server.admit(B, growth=5) is None
    writer.run_one()
    admission = server.admit(B, growth=5)

    assert admission is not None
    assert server.cache.counts.evictions == 1
    server.cache.release(admission)
    assert server.ask([*A, 1])[0::2] == (20, "ssd")


def test_a_clean_victim_is_freed_at_once(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, capacity_bytes=2500, writer=writer)
    server.ask(A)
    server.settle()

    admission = server.admit(B, growth=5)

    assert admission is not None
    assert writer.waiting == []


@pytest.mark.parametrize("write_behind", [True, False])
def test_a_budget_of_nothing_on_ssd_is_as_no_ssd(tmp_path: Path, write_behind: bool) -> None:
    server = ToyServer(tmp_path, capacity_bytes=2500, ssd_bytes=0, options={"write_behind": write_behind})
    server.ask(A)

    admission = server.admit(B, growth=5)

    assert admission is not None, "nothing runs and nothing can be written: it must not wait"
    server.cache.release(admission)
    assert server.ask([*A, 1])[0] == 0


def test_no_more_is_freed_than_is_needed(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, capacity_bytes=4600)
    for prompt in (A, B, C):
        server.ask(prompt)
    server.settle()

    server.ask(list(range(300, 320)))

    assert server.cache.counts.evictions == 1
    assert [server.ask([*prompt, 1])[2] for prompt in (B, C)] == ["resident", "resident"]


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


def test_a_disk_that_fails_costs_snapshots_and_never_a_request(tmp_path: Path) -> None:
    class BrokenFiles(Files):
        def create(self, path: Path) -> int:
            raise OSError(28, "No space left on device")

    server = ToyServer(tmp_path, capacity_bytes=2500)
    server.store.files = BrokenFiles()

    for prompt in (A, B, C, A):
        server.ask(prompt, [7])

    assert server.cache.ssd_counts.saves_failed >= 3
    assert server.cache.ssd_counts.saves == 0


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


def test_a_snapshot_is_invisible_while_it_is_written_and_two_requests_meanwhile_are_right(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, writer=writer)
    server.ask(A)
    server.cache.pump()
    assert len(writer.waiting) == 1

    looker = ToyServer(tmp_path / "other").store
    assert server.store.closest("", b"") is None
    assert list(server.store.entries) == []
    assert server.ask(A)[0::2] == (19, "resident")
    server.settle()

    assert len(server.store.entries) == 1
    assert list((tmp_path / "temporary").iterdir()) == []
    looker.close()


def test_a_longer_round_is_written_in_place_of_the_shorter_one_that_it_contains(tmp_path: Path) -> None:
    writer = HeldWorker()
    server = ToyServer(tmp_path, writer=writer)
    server.ask(B)
    server.cache.pump()  # the writer is busy with B
    server.ask(A)
    server.ask([*A, 1, 2, 3])

    assert server.cache.num_dirty == 2, "B, and the longer A"
    server.settle()
    assert sorted(entry.manifest.length for entry in server.store.entries.values()) == [20, 23]


@pytest.mark.parametrize("num_stages", [1, 3])
def test_a_stage_is_waited_for_alone(tmp_path: Path, num_stages: int) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    server.settle()
    (entry,) = server.store.entries.values()
    gate = threading.Event()

    class SlowTarget(ToyTarget):
        def row_buffers(self, stage: int, start: int, num_rows: int) -> list[memoryview]:
            if stage == num_stages - 1:
                assert gate.wait(10)
            return list(super().row_buffers(stage, start, num_rows))

    target = SlowTarget(20, num_stages)
    restore = Restore(plan_restore(server.store, entry, 20, ToyCodec()), ToyCodec(), target, Files(), num_stages)
    thread = threading.Thread(target=restore.run)
    thread.start()
    try:
        for stage in range(num_stages - 1):
            restore.wait_stage(stage, 10)
            assert bytes(target.rows[stage]) == b"".join(payload_row(stage, n) for n in range(20))
        assert not restore.is_stage_done(num_stages - 1)
        assert not restore.is_drained
    finally:
        gate.set()
        thread.join()
    restore.wait_stage(num_stages - 1, 10)
    assert target.landed == list(range(num_stages))
    assert target.holds(A)


def payload_row(layer: int, position: int) -> bytes:
    return row(layer, A[: position + 1])


def test_a_stage_that_comes_too_late_cancels_the_restore_and_the_buffer_is_its_own_until_it_has_drained(tmp_path: Path) -> None:
    server = ToyServer(tmp_path)
    server.ask(A)
    server.settle()
    (entry,) = server.store.entries.values()
    gate = threading.Event()

    class StuckTarget(ToyTarget):
        def row_buffers(self, stage: int, start: int, num_rows: int) -> list[memoryview]:
            if start == 8:
                gate.wait(10)
            return list(super().row_buffers(stage, start, num_rows))

    target = StuckTarget(20)
    restore = Restore(plan_restore(server.store, entry, 20, ToyCodec()), ToyCodec(), target, Files())
    thread = threading.Thread(target=restore.run)
    thread.start()
    with pytest.raises(RestoreFailed, match="did not come within"):
        restore.wait_stage(0, 0.05)
    assert not restore.is_drained, "a command may still be writing into it"
    assert not restore.wait_drained(0.01)

    gate.set()
    thread.join()
    assert restore.is_drained
    with pytest.raises(RestoreFailed, match="cancelled"):
        restore.wait_stage(0)
    assert restore.damaged is None, "nothing was wrong with the snapshot"


def test_reading_is_left_when_computing_was_measured_to_be_faster(tmp_path: Path) -> None:
    server = ToyServer(tmp_path).restart()
    server.ask(A)
    server = server.restart()
    server.cache.rates.observe_restore(num_bytes=1000, seconds=10.0)
    server.cache.rates.observe_prefill(num_tokens=1000, seconds=0.001)

    assert server.ask([*A, 1])[0::2] == (0, None)
    assert server.cache.ssd_counts.recomputed == 1
    server = server.restart()
    server.cache.rates.observe_restore(num_bytes=10_000_000, seconds=0.01)
    server.cache.rates.observe_prefill(num_tokens=10, seconds=1.0)

    assert server.ask([*A, 1, 2])[0::2] == (21, "ssd")


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


def test_two_requests_that_share_no_room_are_served_one_after_the_other(tmp_path: Path) -> None:
    """Two hits on SSD, each of which needs more than is free beside the other: both finish."""
    server = ToyServer(tmp_path).restart()
    server.ask(list(range(80)))
    server.ask(list(range(100, 180)))
    server = server.restart(capacity_bytes=170 * 48)
    waiting = [list(range(160)), [*range(100, 180), *range(500, 540)]]

    for _ in range(20):
        admitted = [(ids, admission) for ids in waiting if (admission := server.admit(ids)) is not None]
        server.cache.pump()
        for ids, admission in admitted:
            assert server.fill(admission, ids) == 80
            server.cache.release(admission)
            waiting.remove(ids)
        server.cache.check()

    assert waiting == []


def test_the_shutdown_writes_what_is_dirty(tmp_path: Path) -> None:
    server = ToyServer(tmp_path, options={"write_behind": False})
    server.ask(A)
    server.cache.pump()
    assert server.cache.num_dirty == 1
    assert not server.cache.is_writing

    server.cache.write_all()
    server = server.restart()

    assert server.ask([*A, 1])[0::2] == (20, "ssd")


def test_a_request_that_fails_while_its_snapshot_is_read_gives_everything_back(tmp_path: Path) -> None:
    server = ToyServer(tmp_path).restart()
    server.ask(A)
    server = server.restart(reader=HeldWorker())
    admission = server.admit([*A, 1])
    assert admission is not None
    restore = server.cache.start_restore(admission, ToyTarget(20))
    restore.cancel()

    server.cache.release(admission)
    server.cache.release(admission)
    server.cache.check()
    assert isinstance(server.reader, HeldWorker)
    server.reader.run_one()

    assert restore.is_drained
    assert restore.failure == "cancelled"
    assert not server.cache.finish_restore(admission, restore)
    server.cache.check()
    assert len(server.store.entries) == 1


def test_wake_is_called_when_there_is_something_to_pump(tmp_path: Path) -> None:
    woken: list[float] = []
    server = ToyServer(tmp_path, options={"wake": lambda: woken.append(time.monotonic())})

    server.ask(A)
    server.cache.pump()

    assert len(woken) == 1


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
