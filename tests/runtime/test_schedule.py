"""What runs next: turns between prompts and streams, chunks as long as the time allows, and nobody is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.runtime.schedule import (
    CHUNK_SECONDS_ALONE,
    CHUNK_SECONDS_BESIDE_STREAMS,
    Action,
    DecodeRound,
    Idle,
    PrefillChunk,
    PrefillSpeed,
    PromptProgress,
    schedule,
)


def measured(seconds_per_unit: float) -> PrefillSpeed:
    speed = PrefillSpeed()
    speed.observe(0, 512, seconds_per_unit * speed.units(0, 512))
    return speed


def test_nothing_waiting_is_idle() -> None:
    assert schedule([], 0, Idle(), PrefillSpeed()) == Idle()


def test_streams_alone_get_every_step() -> None:
    assert schedule([], 3, DecodeRound(), PrefillSpeed()) == DecodeRound()


def test_prompts_alone_get_every_step() -> None:
    action = schedule([PromptProgress(0, 5000)], 0, PrefillChunk(0, 64), PrefillSpeed())

    assert isinstance(action, PrefillChunk)


def test_prompts_and_streams_take_turns() -> None:
    last: Action = Idle()
    kinds = []

    for _ in range(6):
        last = schedule([PromptProgress(0, 5000)], 2, last, PrefillSpeed())
        kinds.append(type(last))

    assert kinds == [PrefillChunk, DecodeRound] * 3


def test_the_first_prompt_comes_first() -> None:
    action = schedule([PromptProgress(10, 20), PromptProgress(0, 5)], 0, Idle(), PrefillSpeed())

    assert action == PrefillChunk(0, 20)


def test_a_chunk_is_as_long_as_the_measured_speed_allows() -> None:
    lengths = [measured(seconds).rows_within(0, 100_000, 0.2) for seconds in (0.1, 0.001, 0.0005, 1e-9)]

    # never less than one step, never more than the largest; between, ends on the borders of attention's tiles
    assert lengths == [32, 128, 384, 1024]


def test_chunks_get_shorter_as_the_keys_before_them_grow() -> None:
    speed = measured(0.0005)

    lengths = [speed.rows_within(done, 100_000, 0.4) for done in (0, 1536, 8192)]

    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] >= 1.9 * lengths[1]


def test_chunks_beside_streams_are_shorter_than_chunks_alone() -> None:
    speed = measured(0.001)
    prompts = [PromptProgress(0, 100_000)]

    beside, alone = (schedule(prompts, streams, Idle(), speed) for streams in (1, 0))

    assert isinstance(beside, PrefillChunk)
    assert isinstance(alone, PrefillChunk)
    assert CHUNK_SECONDS_BESIDE_STREAMS < CHUNK_SECONDS_ALONE
    assert beside.num_rows < alone.num_rows


def test_before_anything_was_measured_a_chunk_beside_streams_is_short() -> None:
    assert PrefillSpeed().rows_within(0, 5000, CHUNK_SECONDS_BESIDE_STREAMS) == 64
    assert PrefillSpeed().rows_within(0, 5000, CHUNK_SECONDS_ALONE) == 512


@given(done=st.integers(0, 20_000), unit_seconds=st.floats(1e-5, 1e-2))
def test_a_chunk_ends_on_a_border_of_attention_tiles_where_that_costs_less_than_half_of_it(
    done: int, unit_seconds: float
) -> None:
    rows = measured(unit_seconds).rows_within(done, 1_000_000, 1.0)

    assert (done + rows) % 128 == 0 or rows < 2 * 128


def test_a_newer_measurement_counts_half() -> None:
    speed = measured(0.001)

    speed.observe(0, 512, 0.003 * speed.units(0, 512))

    assert speed.rows_within(0, 100_000, 0.2) == measured(0.002).rows_within(0, 100_000, 0.2)


def test_a_chunk_too_short_to_measure_changes_nothing() -> None:
    speed = measured(0.001)

    speed.observe(0, 3, 5.0)

    assert speed.rows_within(0, 100_000, 0.2) == measured(0.001).rows_within(0, 100_000, 0.2)


def test_a_clock_that_stands_still_is_no_division_by_zero() -> None:
    speed = PrefillSpeed()
    speed.observe(0, 512, 0.0)

    assert speed.rows_within(0, 100_000, 0.2) == 1024


@given(
    done=st.integers(0, 200_000),
    left=st.integers(1, 200_000),
    seconds=st.floats(0.0, 10.0),
    observed=st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 2000), st.floats(0.0, 60.0)), max_size=4),
)
def test_a_chunk_is_never_empty_and_never_longer_than_what_is_left(
    done: int, left: int, seconds: float, observed: list[tuple[int, int, float]]
) -> None:
    speed = PrefillSpeed()
    for before, rows, took in observed:
        speed.observe(before, rows, took)

    assert 1 <= speed.rows_within(done, left, seconds) <= min(left, 1024)


@dataclass
class Load:
    """Prompts and streams of an imagined server: a chunk takes the time that its rows take."""

    prompts: list[PromptProgress]
    seconds_per_unit: float
    streams: int = 0
    speed: PrefillSpeed = field(default_factory=PrefillSpeed)

    def run(self, action: PrefillChunk) -> float:
        prompt = self.prompts[action.index]
        assert 1 <= action.num_rows <= prompt.left
        seconds = self.seconds_per_unit * self.speed.units(prompt.done, action.num_rows)
        self.speed.observe(prompt.done, action.num_rows, seconds)
        self.prompts[action.index] = PromptProgress(prompt.done + action.num_rows, prompt.left - action.num_rows)
        if self.prompts[action.index].left == 0:
            del self.prompts[action.index]
            self.streams += 1
        return seconds


@given(
    st.lists(st.integers(1, 6000), max_size=5),
    st.integers(0, 3),
    st.floats(1e-6, 1e-3),
)
def test_every_prompt_is_finished_and_no_stream_waits_for_more_than_one_chunk(
    lengths: list[int], streams: int, seconds_per_unit: float
) -> None:
    load = Load([PromptProgress(0, length) for length in lengths], seconds_per_unit, streams)
    last: Action = Idle()

    for _ in range(4 * sum(lengths) // 32 + 4 * len(lengths) + 1):
        had_streams = load.streams > 0
        action = schedule(load.prompts, load.streams, last, load.speed)
        if isinstance(action, PrefillChunk):
            assert not (had_streams and isinstance(last, PrefillChunk)), "two chunks in a row while a stream waits"
            seconds = load.run(action)
            if had_streams and action.num_rows > 64:
                assert seconds < 2 * CHUNK_SECONDS_BESIDE_STREAMS
        last = action
        if not load.prompts:
            break

    assert not load.prompts
