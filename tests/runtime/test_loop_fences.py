"""The loop and fences: forced ids are fed without sampling, forbidden ones never come."""

from __future__ import annotations

import torch

from tests.runtime.stub_model import PROMPT, ForcingFence, HashModel, Heard, continuation, job, new_loop, run
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.sampler import SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason
from zllm_ref.runtime.weights import seeded_checkpoint

# fences


def test_ids_that_the_fence_forces_are_fed_without_sampling_and_leave_the_right_rows() -> None:
    first = continuation(PROMPT, 1)[0]
    fence = ForcingFence(first, (40, 41, 42))
    model = HashModel()
    loop = new_loop(model)

    heard = run(loop, max_new_tokens=8, plans=(ChoicePlan(SamplingParameters(), fence),))

    forced = [first, 40, 41, 42]
    assert heard.ids() == [*forced, *continuation([*PROMPT, *forced], 4)]
    assert [token.forced for token in heard.tokens[0]] == [False, True, True, True, False, False, False, False]
    assert fence.advanced == heard.ids()
    assert model.steps[:3] == [(5,), (4,), (1,)]
    again = run(loop, [*PROMPT, *heard.ids(), 1])
    assert again.report is not None
    assert again.report.cached_tokens == len(PROMPT) + 7
    assert again.ids() == continuation([*PROMPT, *heard.ids(), 1], 5)


def test_forced_ids_stop_at_the_limit_of_the_job() -> None:
    first = continuation(PROMPT, 1)[0]

    heard = run(new_loop(), max_new_tokens=3, plans=(ChoicePlan(SamplingParameters(), ForcingFence(first, (40, 41, 42))),))

    assert heard.ids() == [first, 40, 41]
    assert heard.reason is EndReason.MAX_TOKENS


def test_a_fenced_lane_and_a_free_one_share_a_round() -> None:
    loop = new_loop()
    first = continuation(PROMPT, 1)[0]
    fenced, free = Heard(), Heard()
    loop.submit(job(PROMPT, 8, listener=fenced, plans=(ChoicePlan(SamplingParameters(), ForcingFence(first, (40, 41))),)))
    loop.submit(job([9, 9], 8, listener=free))
    loop.run_until_idle()

    assert free.ids() == continuation([9, 9], 8)
    assert fenced.ids() == [first, 40, 41, *continuation([*PROMPT, first, 40, 41], 5)]


def test_what_the_fence_forbids_never_comes() -> None:
    best = continuation(PROMPT, 1)[0]
    fence = ForcingFence(-1, (), frozenset({best}))

    heard = run(new_loop(), max_new_tokens=1, plans=(ChoicePlan(SamplingParameters(), fence),))

    assert heard.ids() == [0 if best else 1]


def test_a_fenced_round_gives_the_bits_of_the_plain_prompt_on_a_real_model() -> None:
    """Forced ids go in as a chunk beside other lanes: the tokens after them are those of a prompt that has them."""
    model = build_model(seeded_checkpoint("tiny-llama", torch.float32), Numerics(torch.float32, 1))

    def new() -> RuntimeLoop:
        return RuntimeLoop(model, PrefixCache(model.state.layout(), 1 << 26, identity="tiny"))

    plain = run(new(), [5, 6, 7], 1).ids()
    fence = ForcingFence(plain[0], (30, 31, 32))
    loop, fenced = new(), Heard()
    loop.submit(job([8, 9], 9))
    loop.submit(job([5, 6, 7], 9, listener=fenced, plans=(ChoicePlan(SamplingParameters(), fence),)))
    loop.run_until_idle()

    assert fenced.ids() == [plain[0], 30, 31, 32, *run(new(), [5, 6, 7, plain[0], 30, 31, 32], 5).ids()]
