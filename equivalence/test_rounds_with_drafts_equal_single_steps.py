"""A verified round against single steps, with the real fence, guard, sampler and parser of real requests.

The model favours a dictated answer: a thought, `</think>`, text, the trigger and a call, the stop id. Guesses of every length
begin at every place and go wrong at every place, so each marker comes to lie at each place of a draft.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from zllm_ref.canonical.event import Event, ReasoningDelta, ToolCallFinished
from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.canonical.message import Message, Role, Text
from zllm_ref.canonical.request import FunctionTool, Protocol, ReasoningSettings, Request, ToolChoiceRequired
from zllm_ref.config import EngineSettings, ModelSettings
from zllm_ref.engine import Engine
from zllm_ref.engine.answer import ChoiceAnswer
from zllm_ref.engine.script import token_script
from zllm_ref.runtime.decode import decode_round, first_tokens
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob
from zllm_ref.runtime.sequence import Sequence as Lane
from zllm_ref.runtime.state import SessionState, StateDeclaration, StateTensor
from zllm_ref.runtime.step import Step, build_step, commit_step
from zllm_ref.runtime.verify import DraftedSequence, verify_round

from .conftest import EXAMPLES

DIALECTS = ("chatml-qwen3", "dsml-v4", "glm-4.7", "qwen3-coder")
SAMPLINGS = {
    "greedy": SamplingParameters(top_logprobs=1),
    "sampled": SamplingParameters(temperature=1.5, seed=3, top_logprobs=0),
    "penalised": SamplingParameters(temperature=0.8, seed=4, frequency_penalty=0.5, repetition_penalty=1.3),
}
MOST_TOKENS = 210
PROMPT = (65, 66, 67)
WEATHER = FunctionTool(
    "get_weather",
    "The weather in a city.",
    parse_json_object(
        '{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}'
    ),
)


@dataclass
class Dictated:
    """Says the line, as far as the fence and the sampler let it. State: `ids` and, uncuttable, their sum."""

    line: Sequence[int]
    vocab_size: int
    strength: float
    context_length: int = 4096
    architecture: str = "dictated"
    numerics: Numerics = field(default_factory=lambda: Numerics(torch.float32))
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    state: StateDeclaration = field(
        default_factory=lambda: StateDeclaration(
            [StateTensor("ids", 1, (1,), torch.int64), StateTensor("sum", 1, (1,), torch.int64, grows=False)]
        )
    )

    def forward(self, step: Step) -> Tensor:
        hidden = torch.zeros(step.ids.shape[0], 2)
        for lane in step.lanes:
            ids = step.ids[lane.row : lane.row + lane.num_rows]
            lane.state.tensors["ids"][0, lane.start : lane.start + lane.num_rows, 0] = ids
            for row, token in enumerate(ids.tolist()):
                lane.state.tensors["sum"][0, 0] = (lane.state.tensors["sum"][0, 0] * 31 + token + 1) % 99991
                hidden[lane.row + row, 0] = lane.start + row + 1 - len(PROMPT)
                hidden[lane.row + row, 1] = lane.state.tensors["sum"][0, 0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        rows = torch.zeros(hidden.shape[0], self.vocab_size)
        for row, (place, mixed) in zip(rows, hidden.long().tolist(), strict=True):
            row += torch.randn(self.vocab_size, generator=torch.Generator().manual_seed(mixed))
            row[self.line[min(place, len(self.line) - 1)]] += self.strength
        return rows


@dataclass
class Setting:
    """A request with all that an engine makes of it, and the answer step by step."""

    engine: Engine
    asked: Request
    thinks: bool
    model: Dictated
    sampling: SamplingParameters

    def new_lane(self) -> Spoken:
        loaded = self.engine.loaded
        fence = self.engine.fence_of(self.asked, self.thinks)
        plan = ChoicePlan(self.sampling, fence)
        stops = frozenset(loaded.dialect.stop_ids)
        limit = MOST_TOKENS if self.model.strength > 10.0 else 60  # a free text goes on for ever
        job = GenerationJob(np.array(PROMPT, dtype=np.int32), limit, stops, (plan,), None)  # type: ignore[arg-type]
        state = SessionState(self.model.state, len(PROMPT) + MOST_TOKENS, self.model.device)
        step = build_step([(state, PROMPT)], self.model.numerics, self.model.device)
        hidden = self.model.forward(step)[len(PROMPT) - 1 : len(PROMPT)]
        commit_step(step)
        (lane,) = first_tokens(self.model, job, state, hidden, loaded.vocabulary.size)
        spoken = Spoken(lane, self.engine.reader(self.asked, self.thinks))
        spoken.tell(lane, lane.first)
        return spoken


@dataclass
class Spoken:
    """A sequence and the reader of its answer: the loop's and the listener's part, in short."""

    lane: Lane
    reader: ChoiceAnswer
    events: list[Event] = field(default_factory=list)
    tokens: list[SampledToken] = field(default_factory=list)

    def tell(self, lane: Lane, tokens: list[SampledToken]) -> None:
        self.tokens += [SampledToken(t.token_id, t.logprob, t.top, t.forced) for t in tokens]
        for token in tokens:
            if token.token_id in lane.job.stop_ids:
                lane.ended = EndReason.STOP_TOKEN
                break
            self.events += self.reader.push(token.token_id)
        if lane.ended is None and len(lane.produced) >= lane.job.max_new_tokens:
            lane.ended = EndReason.MAX_TOKENS

    def picture(self) -> dict[str, Any]:
        """All that the next step depends on, and all that was said."""
        lane, fence = self.lane, self.lane.fence
        mask = fence.allowed() if fence is not None else None
        guard = getattr(fence, "_guard", None)
        rows = {name: tensor.clone() for name, tensor in lane.state.tensors.items()}
        return {
            "produced": list(lane.produced),
            "pending": list(lane.pending),
            "ended": lane.ended,
            "in state": lane.ids_in_state().tolist(),
            "rows": rows["ids"][0, : lane.state.length, 0].tolist(),
            "sum": rows["sum"].tolist(),
            "sampler": list(lane.sampler._produced),
            "allowed": None if mask is None else np.asarray(mask).tolist(),
            "forced": None if fence is None else list(fence.forced()),
            "fence": None if fence is None else fence.explain(),
            "guard": None if guard is None else (guard.explain(), guard.verdict, guard.excluded),
            "tokens": list(self.tokens),
            "events": list(self.events),
            "reasoning tokens": self.reader.reasoning_tokens,
        }


@dataclass
class Given:
    """Guesses what it was given."""

    guesses: list[int]

    def follow(self, start: int, hidden: Tensor, next_ids: Sequence[int]) -> None:
        pass

    def propose(self, limit: int) -> list[int]:
        return self.guesses[:limit]

    def chances(self) -> Sequence[float]:
        return ()

    def judge(self, proposed: int, accepted: int) -> None:
        pass


@cache
def engine_of(dialect: str) -> Engine:
    engine = Engine(EngineSettings(model=ModelSettings(model="scripted", threads=1, dialect=dialect)))
    engine.load()
    return engine


@cache
def setting(dialect: str, sampling: str, strength: float) -> Setting:
    engine = engine_of(dialect)
    loaded = engine.loaded
    thinking = ReasoningSettings(enabled=True)
    asked = Request(
        "r1",
        Protocol.CHAT,
        "scripted",
        (Message(Role.USER, (Text("weather"),)),),
        tools=(WEATHER,),
        tool_choice=ToolChoiceRequired(),
        reasoning=thinking,
    )
    thinks = loaded.dialect.starts_in_reasoning(thinking)
    assert loaded.script is not None
    script = token_script(loaded.script, asked, loaded.dialect, loaded.vocabulary)
    line: list[int] = []
    while more := list(script.next_ids(line)):
        line += more
    line.append(loaded.dialect.stop_ids[0])
    return Setting(engine, asked, thinks, Dictated(line, loaded.model.vocab_size, strength), SAMPLINGS[sampling])


@cache
def step_by_step(dialect: str, sampling: str, strength: float) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """The picture after every single step, by how many tokens there were; and the answer."""
    made = setting(dialect, sampling, strength)
    spoken = made.new_lane()
    pictures = {len(spoken.lane.produced): copy.deepcopy(spoken.picture())}
    while spoken.lane.ended is None:
        (tokens,) = decode_round(made.model, [spoken.lane], made.engine.loaded.vocabulary.size)
        spoken.tell(spoken.lane, tokens)
        pictures[len(spoken.lane.produced)] = copy.deepcopy(spoken.picture())
    return pictures, list(spoken.lane.produced)


def cases() -> Iterator[tuple[str, str, float]]:
    for dialect in DIALECTS:
        for sampling in SAMPLINGS:
            yield dialect, sampling, 60.0
        yield dialect, "sampled", 2.0


@pytest.mark.parametrize(("dialect", "sampling", "strength"), list(cases()))
@torch.inference_mode()
def test_after_a_round_everything_is_as_after_as_many_single_steps(dialect: str, sampling: str, strength: float) -> None:
    made = setting(dialect, sampling, strength)
    pictures, answer = step_by_step(dialect, sampling, strength)
    size = made.engine.loaded.vocabulary.size

    @settings(EXAMPLES, max_examples=15)
    @given(st.integers(0, len(answer)), st.integers(0, 40), st.integers(0, 40), st.integers(1, size))
    def check(begin: int, length: int, wrong_at: int, lie: int) -> None:
        spoken = made.new_lane()
        while spoken.lane.ended is None and len(spoken.lane.produced) < begin:
            (tokens,) = decode_round(made.model, [spoken.lane], size)
            spoken.tell(spoken.lane, tokens)
        if spoken.lane.ended is not None:
            return
        known = len(spoken.lane.produced) - len(spoken.lane.pending) + 1
        guesses = answer[known : known + length]
        if wrong_at < len(guesses):
            guesses[wrong_at] = (guesses[wrong_at] + lie) % (size + 1)  # one of them does not exist

        (result,) = verify_round(made.model, [DraftedSequence(spoken.lane, Given(guesses))], size, spoken.tell)

        expected = pictures[len(spoken.lane.produced)]
        got = spoken.picture()
        for name, value in expected.items():
            assert got[name] == value, name
        assert result.accepted <= result.right <= result.proposed
        spoken.lane.check()
        while spoken.lane.ended is None:  # what no picture shows would show later
            (tokens,) = decode_round(made.model, [spoken.lane], size)
            spoken.tell(spoken.lane, tokens)
        assert spoken.picture() == pictures[len(answer)]

    check()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_dictated_answer_has_everything_in_it(dialect: str) -> None:
    """What the property says is said of thoughts, markers, calls and ends: they are there, and inside of drafts."""
    made = setting(dialect, "greedy", 60.0)
    pictures, answer = step_by_step(dialect, "greedy", 60.0)
    last = pictures[len(answer)]

    assert last["ended"] is EndReason.STOP_TOKEN
    assert [type(event) for event in last["events"]].count(ToolCallFinished) == 1
    if made.engine.loaded.dialect.definition.reasoning is not None:
        assert any(isinstance(event, ReasoningDelta) for event in last["events"])
    markers = [token for token in answer if made.engine.loaded.vocabulary.marker_text(token) is not None]
    assert len(markers) >= 1
    assert any(token.forced for token in last["tokens"])


@pytest.mark.parametrize("dialect", DIALECTS)
@torch.inference_mode()
def test_one_round_may_go_from_a_thought_through_the_call_to_the_end(dialect: str) -> None:
    made = setting(dialect, "greedy", 60.0)
    pictures, answer = step_by_step(dialect, "greedy", 60.0)
    spoken = made.new_lane()
    known = len(spoken.lane.produced) - len(spoken.lane.pending) + 1
    drafted = DraftedSequence(spoken.lane, Given(answer[known:]))

    (result,) = verify_round(made.model, [drafted], made.engine.loaded.vocabulary.size, spoken.tell)

    assert result.right == result.proposed >= len(answer) - len(spoken.lane.first) - 1
    expected, got = pictures[len(answer)], spoken.picture()
    assert {name for name in expected if expected[name] != got[name]} == set()
