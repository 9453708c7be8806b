"""Our own side of the benchmark: the runtime that the server runs, without the server. Runs as a child process.

Same work, same prompts, same medians as the peers' children; and what only we have: how long a running stream stalls while
another prompt is computed, and what row-invariance costs against the same code with it switched off.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.commands.bench_snapshot import measure_snapshots, read_back, snapshot_loop
from zllm_ref.commands.bench_work import BenchWork, Figures, counted, decode_rate, median, prompt_ids, with_prefix_rate
from zllm_ref.runtime.decode import decode_round
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.sampler import SampledToken, Sampler, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob, PromptReport, Timings
from zllm_ref.runtime.sequence import Sequence as Lane
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step
from zllm_ref.runtime.weights import open_checkpoint

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_ROUNDS_A_TURN = 8
_TURNS = 16


@dataclass
class Arrivals:
    """A listener that notes when each token was there."""

    times: list[float] = field(default_factory=list)
    report: PromptReport | None = None

    def on_started(self, report: PromptReport) -> None:
        self.report = report

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> bool:
        self.times += [time.perf_counter()] * len(tokens)
        return False

    def on_ended(self, choice: int, reason: EndReason, stop_token: int | None) -> None:
        pass

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        pass

    def on_failed(self, message: str) -> None:
        raise RuntimeError(message)


def main(order: Mapping[str, Any]) -> None:
    """Writes progress and figures as JSON lines."""
    threads, dtype = order["threads"], DTYPES[order["dtype"]]
    torch.set_num_threads(threads)
    work = BenchWork.from_json(order["work"])
    checkpoint = open_checkpoint(Path(order["gguf_path"]), dtype)
    length = max(work.context_length, int(checkpoint.config["max_position_embeddings"]))
    model = build_model(checkpoint, Numerics(dtype, threads), "cpu", length)
    if "snapshots" in order:  # the new process that only reads back
        print(json.dumps({"figures": read_back(model, order, _first_token_on)}), flush=True)
        return
    figures = measure(model, work)
    if "ssd" in work.figures:
        figures |= measure_snapshots(model, order, _first_token_on)
        figures["ssd_write_stall_seconds"] = _stall_beside_a_save(model, work)
    if "invariance" in work.figures:
        loose = build_model(checkpoint, Numerics(dtype, threads, invariant=False), "cpu", length)
        with torch.inference_mode():
            costs = {str(lanes): _invariance_cost(model, loose, lanes, work) for lanes in (1, work.num_streams)}
        figures["invariance_cost"] = costs
    print(json.dumps({"figures": figures}), flush=True)


def measure(model: Model, work: BenchWork) -> Figures:
    """The figures that one process can take and that peers have too."""
    figures: Figures = {}
    _generate(model, [prompt_ids(16, 1)], 4)  # the first call allocates and chooses kernels
    for name, measure_group in _MEASURES.items():
        if name in work.figures:
            figures |= measure_group(model, work)
    return with_prefix_rate(figures, work)


def _prefill(model: Model, work: BenchWork) -> Figures:
    rates: dict[str, float] = {}
    for length in work.prefill_lengths:
        seconds = [_first_token(model, prompt_ids(length, 100 + n)) for n in counted(f"prefill {length}", work)]
        rates[str(length)] = length / median(seconds)
    return {"prefill_tokens_per_second": rates}


def _decode(model: Model, work: BenchWork) -> Figures:
    alone = [
        decode_rate(_generate(model, [prompt_ids(work.decode_prompt_length, 200 + n)], work.decode_length)[1])
        for n in counted("decode, 1 stream", work)
    ]
    together = []
    for n in counted(f"decode, {work.num_streams} streams", work):
        prompts = [prompt_ids(work.decode_prompt_length, 300 + 10 * n + lane) for lane in range(work.num_streams)]
        together.append(decode_rate(_generate(model, prompts, work.decode_length)[1]))
    return {
        "decode_tokens_per_second": median(alone),
        f"decode_tokens_per_second_{work.num_streams}_streams": median(together),
    }


def _first_tokens(model: Model, work: BenchWork) -> Figures:
    """Seconds to the first token of the prefix, cold; and of prefix + suffix with the prefix resident."""
    loop = _new_loop(model)
    prefix, cold, resident = prompt_ids(work.prefix_length, 400), [], []
    for n in counted("first token", work):
        cold.append(_first_token(model, prompt_ids(work.prefix_length, 500 + n)))
        if n == 0:
            _run(loop, [prefix], 1)
        start, arrivals = _run(loop, [prefix + prompt_ids(work.suffix_length, 600 + n)], 1)
        report = arrivals[0].report
        assert report is not None
        assert report.cached_tokens == work.prefix_length, report
        resident.append(arrivals[0].times[0] - start)
    return {"ttft_cold_seconds": median(cold), "ttft_resident_seconds": median(resident)}


def _stalls(model: Model, work: BenchWork) -> Figures:
    return {"stall_seconds": max(_stall(model, work, 700 + n) for n in counted("stall beside a prefill", work))}


_MEASURES: dict[str, Callable[[Model, BenchWork], Figures]] = {
    "prefill": _prefill,
    "decode": _decode,
    "first-token": _first_tokens,
    "stall": _stalls,
}


def _stall(model: Model, work: BenchWork, seed: int) -> float:
    """The longest gap between two tokens of a running stream while another client's long prompt is computed."""
    loop = _new_loop(model)
    stream, other = Arrivals(), Arrivals()
    loop.submit(_job(prompt_ids(work.decode_prompt_length, seed), 1500, stream))
    with torch.inference_mode():
        while len(stream.times) < 10:
            loop.step()
        loop.submit(_job(prompt_ids(work.prefix_length, seed + 50), 1, other))
        first = len(stream.times) - 1
        while not other.times and loop.step():
            pass
        loop.step()
    assert other.times, "the long prompt was not finished while the stream ran"
    times = stream.times[first:]
    return max(later - earlier for earlier, later in pairwise(times))


def _stall_beside_a_save(model: Model, work: BenchWork) -> float:
    """The longest gap between two tokens of a stream while the state of another client's long prompt is kept and written."""
    with snapshot_loop(model) as loop:
        assert isinstance(loop.cache, TieredCache)
        stream, other = Arrivals(), Arrivals()
        handle = loop.submit(_job(prompt_ids(work.decode_prompt_length, 780), 1500, stream))
        loop.submit(_job(prompt_ids(work.prefix_length, 781), 1, other))
        with torch.inference_mode():
            while not other.times:
                assert loop.step(), "the stream ended before the long prompt was computed"
            first = len(stream.times) - 1
            while loop.cache.ssd_counts.saves == 0:
                assert loop.step(), "the stream ended before the snapshot was written"
            loop.step()
            handle.cancel()
            loop.run_until_idle()
        times = [other.times[0], *stream.times[first + 1 :]]
    return max(later - earlier for earlier, later in pairwise(times))


def _invariance_cost(model: Model, loose: Model, num_lanes: int, work: BenchWork) -> float:
    """How much slower a decode round is with invariance on; both take turns of a few rounds, so that noise meets both alike."""
    sides = [_decoding_lanes(each, num_lanes, work) for each in (model, loose)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(_TURNS):
        for side in ((0, 1), (1, 0))[turn % 2]:
            started = time.perf_counter()
            for _ in range(_ROUNDS_A_TURN):
                decode_round((model, loose)[side], sides[side], model.vocab_size)
            if turn:  # the first turn warms up
                seconds[side].append(time.perf_counter() - started)
    return median([on / off for on, off in zip(*seconds, strict=True)]) - 1.0


def _decoding_lanes(model: Model, num_lanes: int, work: BenchWork) -> list[Lane]:
    lanes = []
    for lane in range(num_lanes):
        ids = prompt_ids(work.decode_prompt_length, 800 + lane)
        state = SessionState(model.state, len(ids) + (_TURNS + 1) * _ROUNDS_A_TURN, model.device)
        step = build_step([(state, ids)], model.numerics, model.device)
        model.forward(step)
        commit_step(step)
        job = _job(ids, 10_000, Arrivals())
        lanes.append(Lane(job, 0, state, Sampler(SamplingParameters(), ()), None, None, produced=[300], pending=[300]))
    return lanes


def _first_token(model: Model, ids: list[int]) -> float:
    start, arrivals = _generate(model, [ids], 1)
    return arrivals[0][0] - start


def _first_token_on(loop: RuntimeLoop, ids: list[int]) -> tuple[float, int]:
    """Seconds to the first token, and how many prompt tokens were cached."""
    start, arrivals = _run(loop, [ids], 1)
    report = arrivals[0].report
    return arrivals[0].times[0] - start, report.cached_tokens if report is not None else 0


def _generate(model: Model, prompts: list[list[int]], new_tokens: int) -> tuple[float, list[list[float]]]:
    start, arrivals = _run(_new_loop(model), prompts, new_tokens)
    return start, [each.times for each in arrivals]


def _run(loop: RuntimeLoop, prompts: list[list[int]], new_tokens: int) -> tuple[float, list[Arrivals]]:
    arrivals = [Arrivals() for _ in prompts]
    start = time.perf_counter()
    for ids, listener in zip(prompts, arrivals, strict=True):
        loop.submit(_job(ids, new_tokens, listener))
    loop.run_until_idle()
    return start, arrivals


def _new_loop(model: Model) -> RuntimeLoop:
    return RuntimeLoop(model, PrefixCache(model.state.layout(), 4 << 30, identity="bench"))


def _job(ids: list[int], new_tokens: int, listener: Arrivals) -> GenerationJob:
    return GenerationJob(
        prompt_ids=np.array(ids, dtype=np.int32),
        max_new_tokens=new_tokens,
        stop_ids=frozenset(),
        choices=(ChoicePlan(SamplingParameters()),),
        listener=listener,
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
