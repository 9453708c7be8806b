"""The loop under any mix of jobs, cancels and faults: the books are right after every step, and every answer is the right one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.runtime.stub_drafters import HashOracles
from tests.runtime.stub_model import HashModel, Heard, assert_idle, continuation, job, new_loop
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.sequence import EndReason
from zllm_ref.runtime.step import Step

prompts = st.one_of(
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.tuples(st.integers(0, 1), st.integers(100, 300)).map(lambda pair: [pair[0]] * pair[1]),
)


@dataclass
class Running:
    prompt: list[int]
    max_new_tokens: int
    stop_at: int | None
    heard: Heard
    handle: JobHandle


class LoopMachine(RuleBasedStateMachine):
    @initialize(
        has_ring=st.booleans(),
        sessions=st.integers(2, 6),
        max_lanes=st.integers(1, 4),
        drafters=st.none() | st.builds(HashOracles, lies=st.integers(0, 4), length=st.integers(1, 6)),
        tick=st.sampled_from([0.0, 0.001, 0.3]),
    )
    def start(self, has_ring: bool, sessions: int, max_lanes: int, drafters: HashOracles | None, tick: float) -> None:
        """`tick`: seconds between two looks at the clock, so that machines of any speed occur and each example can come again."""
        looks = itertools.count()
        self.model = HashModel(has_ring=has_ring)
        self.loop = new_loop(
            self.model, sessions=sessions, max_lanes=max_lanes, drafters=drafters, clock=lambda: tick * next(looks)
        )
        self.jobs: list[Running] = []

    @rule(
        prompt=prompts,
        max_new_tokens=st.integers(1, 6),
        num_choices=st.integers(1, 2),
        stop_at=st.none() | st.integers(1, 3),
        namespace=st.sampled_from(["", "a"]),
        raises_at=st.sampled_from([None, None, None, "tokens", "closed", "everywhere"]),
    )
    def ask(
        self,
        prompt: list[int],
        max_new_tokens: int,
        num_choices: int,
        stop_at: int | None,
        namespace: str,
        raises_at: str | None,
    ) -> None:
        heard = Heard(stop_at=stop_at, raises_at=raises_at)
        wanted = job(prompt, max_new_tokens, listener=heard, num_choices=num_choices, namespace=namespace)
        self.jobs.append(Running(prompt, max_new_tokens, stop_at, heard, self.loop.submit(wanted)))

    @rule(prompt=st.integers(0, 100), max_new_tokens=st.integers(1, 4))
    @precondition(lambda self: any(running.heard.closed for running in self.jobs))
    def take_a_next_turn(self, prompt: int, max_new_tokens: int) -> None:
        closed = [running for running in self.jobs if running.heard.closed]
        before = closed[prompt % len(closed)]
        self.ask([*before.prompt, *before.heard.ids(), 3], max_new_tokens, 1, None, "", None)

    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        with torch.inference_mode():
            for _ in range(times):
                self.loop.step()
                self.loop.cache.check()
                for handle in self.loop._decoding:
                    for sequence in handle.sequences:
                        sequence.check()

    @rule(which=st.integers(0, 100))
    @precondition(lambda self: bool(self.jobs))
    def cancel(self, which: int) -> None:
        self.jobs[which % len(self.jobs)].handle.cancel()

    @rule()
    def fail_one_step(self) -> None:
        def fails(step: Step) -> bool:
            self.model.fails_when = lambda later: False
            return True

        self.model.fails_when = fails
        self.step(1)
        self.model.fails_when = lambda step: False

    @rule()
    def finish_all(self) -> None:
        self.loop.run_until_idle()
        assert_idle(self.loop)
        for running in self.jobs:
            heard = running.heard
            is_over = heard.closed or bool(heard.failed) or running.handle.cancelled or heard.raises_at is not None
            assert is_over, "a job was forgotten"

    @invariant()
    def every_answer_is_the_right_one(self) -> None:
        for running in getattr(self, "jobs", []):
            heard = running.heard
            for choice in heard.tokens:
                assert heard.ids(choice) == continuation(running.prompt, len(heard.ids(choice)))
            if heard.closed:
                wanted = min(running.max_new_tokens, running.stop_at or running.max_new_tokens)
                assert len(heard.ids()) == wanted
                stopped = running.stop_at is not None and running.stop_at <= running.max_new_tokens
                assert heard.reason is (EndReason.STOPPED if stopped else EndReason.MAX_TOKENS)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.finish_all()


LoopMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestAnyMixOfJobs = LoopMachine.TestCase
