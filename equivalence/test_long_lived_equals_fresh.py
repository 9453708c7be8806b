"""A process that has served many requests gives the bits of a process that has just started."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import torch

from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob, PromptReport, Timings

from .fresh_process import digest
from .subjects import prompt_ids


class Collector:
    """Remembers what one job produced."""

    def __init__(self) -> None:
        self.report: PromptReport | None = None
        self.ids: list[int] = []
        self.logprobs: list[float | None] = []
        self.failed: str | None = None

    def on_started(self, report: PromptReport) -> None:
        self.report = report

    def on_tokens(self, choice: int, tokens: list[SampledToken]) -> bool:
        self.ids += [token.token_id for token in tokens]
        self.logprobs += [token.logprob for token in tokens]
        return False

    def on_ended(self, choice: int, reason: EndReason, stop_token: int | None) -> None:
        pass

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        pass

    def on_failed(self, message: str) -> None:
        self.failed = message


def job(ids: list[int], listener: Collector, new_tokens: int = 12, temperature: float = 0.0, seed: int = 0) -> GenerationJob:
    sampling = SamplingParameters(temperature=temperature, seed=seed, top_logprobs=0)
    return GenerationJob(
        prompt_ids=np.array(ids, dtype=np.int32),
        max_new_tokens=new_tokens,
        stop_ids=frozenset(),
        choices=(ChoicePlan(sampling),),
        listener=listener,  # type: ignore[arg-type]
    )


def serve(model: Model, jobs: list[GenerationJob]) -> PrefixCache:
    cache = PrefixCache(model.state.layout(), 1 << 30, identity="equivalence")
    loop = RuntimeLoop(model, cache)
    for each in jobs:
        loop.submit(each)
    loop.run_until_idle()
    cache.check()
    assert cache.reserved_bytes == 0
    assert cache.pinned_bytes == 0
    return cache


def test_a_long_lived_process_gives_the_bits_of_a_fresh_one(named: tuple[str, str], model: Model, device: str) -> None:
    serve(model, [job(prompt_ids(model, 20 + 37 * n, seed=60 + n), Collector()) for n in range(8)])

    fresh = subprocess.run(
        [sys.executable, "-m", "equivalence.fresh_process", *named, device], capture_output=True, text=True, check=True
    )

    assert digest(model) == fresh.stdout.strip()


def test_the_digest_of_another_prompt_differs(model: Model) -> None:
    from . import fresh_process

    before = digest(model)
    changed = prompt_ids(model, fresh_process.LENGTH, seed=50)
    changed[-1] = (changed[-1] + 1) % model.vocab_size

    run = fresh_process.run_whole(model, changed)
    other = fresh_process.logits(model, run.hidden)
    same = fresh_process.logits(model, fresh_process.run_whole(model, prompt_ids(model, fresh_process.LENGTH, seed=50)).hidden)

    assert before == digest(model)
    assert not torch.equal(other, same)


def test_answers_under_load_and_from_the_cache_are_those_of_an_idle_cold_runtime(model: Model) -> None:
    """Tokens and log probabilities of the whole runtime: alone and cold, against in company and continued from a state."""
    first = prompt_ids(model, 150, seed=80)
    alone = Collector()
    serve(model, [job(first, alone, temperature=0.8, seed=7)])
    second = first + alone.ids[:-1] + prompt_ids(model, 30, seed=81)
    cold = Collector()
    serve(model, [job(second, cold, temperature=0.8, seed=8)])

    again, continued = Collector(), Collector()
    neighbours = [job(prompt_ids(model, 11 + 90 * n, seed=90 + n), Collector(), new_tokens=20) for n in range(3)]
    cache = PrefixCache(model.state.layout(), 1 << 30, identity="equivalence")
    loop = RuntimeLoop(model, cache)
    for each in [*neighbours, job(first, again, temperature=0.8, seed=7)]:
        loop.submit(each)
    loop.run_until_idle()
    loop.submit(job(second, continued, temperature=0.8, seed=8))
    loop.run_until_idle()

    assert continued.report is not None
    assert continued.report.cached_tokens == 150 + len(alone.ids) - 1
    assert (again.ids, again.logprobs) == (alone.ids, alone.logprobs)
    assert (continued.ids, continued.logprobs) == (cold.ids, cold.logprobs)
    assert continued.ids != again.ids
