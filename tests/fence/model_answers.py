"""Fenced answers of real models with random weights, on the runtime's own paths: plain rounds, rounds of several lanes, drafts.

A case follows from its number alone: the tools, whether the model thinks first, its seed. All three paths must say the same ids,
and the dialect's strict parser and `jsonschema` judge every call.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import jsonschema
import numpy as np
import torch
from torch import Tensor

from tests.fence.random_tools import random_tools
from zllm_ref.canonical.json_value import to_python
from zllm_ref.canonical.request import FunctionTool, ToolChoice, ToolChoiceAuto, ToolChoiceNamed, ToolChoiceRequired
from zllm_ref.dialect.event import CallFinished, CallStarted, Diagnostic
from zllm_ref.dialect.registry import dialect_for
from zllm_ref.dialect.tool_dialect import ToolDialect
from zllm_ref.fence import FenceCompiler, FenceRequest, GuardSettings, TokenFence, build_fence
from zllm_ref.fence.grammar import Marker
from zllm_ref.runtime.decode import decode_round, first_tokens
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob, Sequence
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step
from zllm_ref.runtime.verify import DraftedSequence, verify_round
from zllm_ref.runtime.weights import seeded_checkpoint
from zllm_ref.tokenizer import Detokenizer, Vocabulary

PATHS = ("plain", "batch", "draft+verify")
CHOICES = ("auto", "required", "named")
MOST = 1500
LANES = 4
GUARD = GuardSettings(value_budget=8, call_budget=160, reasoning_budget=8)
"""Noise closes a value by luck alone; budgets bring it to an end."""
EAGER = 18.0
"""The bias that makes a random model say the trigger of calls: its logits have a standard deviation of four."""


class IllegalCall(AssertionError):
    """An answer that the fence let through and that is no legal call."""


@dataclass(frozen=True)
class Case:
    """One request. `number` decides everything random in it."""

    number: int
    dialect: str
    choice: str

    @property
    def rng(self) -> random.Random:
        return random.Random(f"{self.number} {self.dialect} {self.choice}")


@dataclass(frozen=True)
class Judged:
    """What came of a case: ids of the answer, and how many calls were finished in it."""

    ids: tuple[int, ...]
    num_calls: int


class FencedModel:
    """A seeded model over a vocabulary, and the fences for it."""

    def __init__(self, name: str, vocabulary: Vocabulary) -> None:
        size = -(-vocabulary.size // 64) * 64
        checkpoint = seeded_checkpoint(name, torch.bfloat16, vocab_size=size)
        self.model: Model = build_model(checkpoint, Numerics(torch.bfloat16))
        self.vocabulary = vocabulary
        self.compiler = FenceCompiler(vocabulary, capacity=8)
        self._dialects: dict[str, ToolDialect] = {}

    def dialect(self, name: str) -> ToolDialect:
        if name not in self._dialects:
            self._dialects[name] = dialect_for(None, self.vocabulary, name)
        return self._dialects[name]

    @torch.inference_mode()
    def answers(self, case: Case) -> dict[str, list[Judged]]:
        """The case alone, and four lanes of it with seeds of their own in a batch and with drafts.

        Raises IllegalCall for what should not exist, AssertionError where the paths differ.
        """
        rng = case.rng
        tools = random_tools(rng)
        thinks = rng.random() < 0.3
        plain = self._plain([self._begin(case, tools, thinks)])
        together = self._plain([self._begin(case, tools, thinks, seed) for seed in range(LANES)])
        drafted = [self._begin(case, tools, thinks, seed) for seed in range(LANES)]
        self._drafted(drafted, [lane.produced for lane in together], random.Random(case.number))
        said = {"plain": plain, "batch": together, "draft+verify": drafted}
        for path, sequences in said.items():
            for lane, sequence in enumerate(sequences):
                if sequence.produced != together[lane].produced:
                    raise AssertionError(f"{case}: lane {lane} says different things in a batch and {path}")
        return {path: [self.judge(case, tools, thinks, one) for one in answers] for path, answers in said.items()}

    # ---- one sequence -------------------------------------------------------------------------------------------------

    def _begin(self, case: Case, tools: tuple[FunctionTool, ...], thinks: bool, seed: int = 0) -> Sequence:
        dialect = self.dialect(case.dialect)
        grammar = dialect.fence_grammar(tools)
        fence = self._fence(case, tools, thinks)
        assert isinstance(grammar.trigger, Marker)
        trigger = self.vocabulary.marker_id(grammar.trigger.name)
        bias: tuple[tuple[int, float], ...] = ()
        prompt = [1 + (case.number * 7 + place) % 250 for place in range(6)]
        if case.choice == "auto" and trigger is not None:
            needed = self.vocabulary.encode_text(grammar.trigger_needs) if grammar.trigger_needs else []
            bias = tuple((token_id, EAGER) for token_id in (trigger, *needed))
        elif case.choice == "auto":  # spelled: noise would hardly ever hit it, so it is there already
            end = dialect.definition.reasoning
            closed = end.close_marker.name if thinks and end is not None else ""
            said = self.vocabulary.encode_with_markers(closed + "So." + grammar.lead + grammar.trigger.name)
            for token_id in said:
                fence.advance(token_id)
            prompt += said
        temperature = float(case.number % 2)  # greedy, and drawn
        sampling = SamplingParameters(temperature=temperature, seed=case.number + 1_000_003 * seed, logit_bias=bias)
        job = GenerationJob(
            np.array(prompt, dtype=np.int32), MOST, frozenset(dialect.stop_ids), (ChoicePlan(sampling, fence),), _Silent()
        )
        state = SessionState(self.model.state, len(prompt) + MOST, self.model.device)
        step = build_step([(state, prompt)], self.model.numerics, self.model.device)
        hidden = self.model.forward(step)
        commit_step(step)
        last = hidden[len(prompt) - 1 : len(prompt)]
        (sequence,) = first_tokens(self.model, job, state, last, self.vocabulary.size)
        tell(sequence, sequence.first)
        return sequence

    def _fence(self, case: Case, tools: tuple[FunctionTool, ...], thinks: bool) -> TokenFence:
        grammar = self.dialect(case.dialect).fence_grammar(tools)
        choices: dict[str, ToolChoice] = {
            "auto": ToolChoiceAuto(),
            "required": ToolChoiceRequired(),
            "named": ToolChoiceNamed(tools[-1].name),
        }
        starts = thinks and grammar.reasoning is not None
        request = FenceRequest(
            grammar, tools, choices[case.choice], starts_in_reasoning=starts, may_open_reasoning=False, max_calls=2
        )
        fence = build_fence(request, self.compiler, GUARD)
        assert fence is not None
        assert fence.problems == (), fence.problems
        return fence

    def _plain(self, sequences: list[Sequence]) -> list[Sequence]:
        while running := [sequence for sequence in sequences if sequence.ended is None]:
            for sequence, tokens in zip(running, decode_round(self.model, running, self.vocabulary.size), strict=True):
                tell(sequence, tokens)
        return sequences

    def _drafted(self, sequences: list[Sequence], answers: list[list[int]], dice: random.Random) -> None:
        size = self.vocabulary.size
        lanes = [DraftedSequence(one, Guesser(one, said, dice, size)) for one, said in zip(sequences, answers, strict=True)]
        while running := [lane for lane in lanes if lane.sequence.ended is None]:
            verify_round(self.model, running, size, tell)

    # ---- the judge ------------------------------------------------------------------------------------------------------

    def judge(self, case: Case, tools: tuple[FunctionTool, ...], thinks: bool, sequence: Sequence) -> Judged:
        """The answer, read strictly: it came to its end, its calls are finished, valid, chosen, and nothing was remarked."""
        dialect, ids = self.dialect(case.dialect), list(sequence.produced)
        text = self.vocabulary.decode(ids)
        if sequence.ended is not EndReason.STOP_TOKEN:
            raise IllegalCall(f"{case}: no end within {MOST} tokens: {text[-200:]!r}")
        prompt = sequence.job.prompt_ids.tolist()[6:]
        starts = thinks and dialect.definition.reasoning is not None
        detokenizer = Detokenizer(self.vocabulary)
        pieces = [piece for token_id in [*prompt, *ids[:-1]] for piece in detokenizer.push(token_id)]
        parser = dialect.parser(tools, starts_in_reasoning=starts)
        events = [*parser.push([*pieces, *detokenizer.finish()]), *parser.finish()]
        remarks = [event.message for event in events if isinstance(event, Diagnostic)]
        if remarks:
            raise IllegalCall(f"{case}: {remarks} in {text!r}")
        started = {event.ordinal: event.name for event in events if isinstance(event, CallStarted)}
        finished = {event.ordinal: event.arguments for event in events if isinstance(event, CallFinished)}
        if started.keys() != finished.keys() or (not started and case.choice != "auto") or len(started) > 2:
            raise IllegalCall(f"{case}: {len(started)} calls begun, {len(finished)} finished in {text!r}")
        schemas = {tool.name: to_python(tool.parameters) for tool in tools if tool.parameters is not None}
        for ordinal, name in started.items():
            if case.choice == "named" and (name != tools[-1].name or len(started) != 1):
                raise IllegalCall(f"{case}: called {name}")
            try:
                jsonschema.validate(json.loads(finished[ordinal]), schemas[name])
            except jsonschema.ValidationError as error:
                raise IllegalCall(f"{case}: {name}({finished[ordinal]}): {error.message}") from None
        return Judged(tuple(ids), len(finished))


class Guesser:
    """Guesses what will be said, wrong or of another length by dice: rounds accept all, some, or nothing of a draft."""

    def __init__(self, sequence: Sequence, answer: list[int], dice: random.Random, size: int) -> None:
        self._sequence = sequence
        self._answer = answer
        self._dice = dice
        self._size = size

    def follow(self, start: int, hidden: Tensor, next_ids: Ids[int]) -> None:
        return

    def propose(self, limit: int) -> list[int]:
        known = len(self._sequence.produced)
        ahead = self._answer[known : known + min(limit, self._dice.randint(0, 6))]
        return [token_id if self._dice.random() < 0.8 else self._dice.randrange(self._size) for token_id in ahead]

    def chances(self) -> Ids[float]:
        return ()

    def judge(self, proposed: int, accepted: int) -> None:
        return


class _Silent:
    """A listener that hears nothing: the rounds here tell a function instead."""


def tell(sequence: Sequence, tokens: list[SampledToken]) -> None:
    """The loop's own rule for the end of a sequence."""
    if any(token.token_id in sequence.job.stop_ids for token in tokens):
        sequence.ended = EndReason.STOP_TOKEN
    elif len(sequence.produced) >= sequence.job.max_new_tokens:
        sequence.ended = EndReason.MAX_TOKENS
