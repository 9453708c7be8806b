"""The engine: takes canonical requests, starts generation jobs."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zllm_ref.cache.admission import AdmissionImpossible
from zllm_ref.cache.key import tagged_fields
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.figure import Figure
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import Request, Tool, ToolChoiceNone
from zllm_ref.config import EngineSettings
from zllm_ref.dialect import ParseMode, Replay, Segment, UnrenderableValue, encode
from zllm_ref.dialect.template import TemplateError
from zllm_ref.engine.answer import ChoiceAnswer
from zllm_ref.engine.call_check import CallCheck
from zllm_ref.engine.figures import cache_figures, draft_figures
from zllm_ref.engine.listening import AnswerListener, Listener
from zllm_ref.engine.loading import Loaded, load
from zllm_ref.engine.observer import EngineObserver, opened
from zllm_ref.engine.script import token_script
from zllm_ref.fence import FencePolicy, FenceRequest, GuardSettings, TokenFence, build_fence
from zllm_ref.runtime.job_handle import JobHandle
from zllm_ref.runtime.sampler import SamplingParameters, choice_seed
from zllm_ref.runtime.sequence import ChoicePlan, GenerationJob

_log = logging.getLogger(__name__)
_SALTED = "salted "

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Prompt:
    """A request's prompt: its segments, their ids, and how the answer begins."""

    segments: tuple[Segment, ...]
    ids: tuple[int, ...]
    starts_in_reasoning: bool


class Engine:
    """Serves one model. Made at once, loaded by `load`; until then requests are told to come back."""

    def __init__(self, settings: EngineSettings, report: Report | None = None) -> None:
        self.settings = settings
        self.observer: EngineObserver | None = None
        """Told of every request; None: nobody, and nothing is done for it."""
        self._report = report or (lambda step, done, total: None)
        self._loaded: Loaded | None = None
        self._problem: str | None = None
        self._stage = "starting"

    # life

    def load(self) -> None:
        """Fetches, reads and starts the model. Raises what the pieces raise; `health` says failed from then on."""
        try:
            loaded = load(self.settings, self._tell)
        except Exception as error:
            self._problem = str(error) or type(error).__name__
            raise
        loaded.loop.start()
        self._loaded = loaded

    def close(self) -> None:
        """Stops the runtime; requests that still run are told so."""
        if self._loaded is not None:
            self._loaded.close()

    def health(self) -> dict[str, object]:
        """`status` is loading, ready or failed."""
        if self._problem is not None:
            return {"status": "failed", "error": self._problem}
        if self._loaded is None:
            return {"status": "loading", "stage": self._stage}
        # a scripted model is a test instrument: requests may say how many tokens make a step
        instrument = {"test_instrument": True} if self._loaded.script is not None else {}
        return {"status": "ready", "model": self._loaded.card.id, **instrument}

    @property
    def loaded(self) -> Loaded:
        """The loaded model; ApiError (503) while it is still on its way."""
        if self._loaded is None:
            message = self._problem or f"the model is still loading ({self._stage})"
            raise ApiError(ErrorKind.OVERLOADED, message, retry_after_seconds=1)
        return self._loaded

    @property
    def models(self) -> tuple[ModelCard, ...]:
        """What this server serves; empty while loading."""
        return (self._loaded.card,) if self._loaded is not None else ()

    def figures(self) -> tuple[Figure, ...]:
        """What the cache and the drafts say of themselves; nothing while loading."""
        if self._loaded is None:
            return ()
        drafts = draft_figures(self._loaded.loop.draft_counts) if self._loaded.drafters is not None else ()
        return (*cache_figures(self._loaded.cache), *drafts)

    def _tell(self, step: str, done: int, total: int) -> None:
        self._stage = step
        self._report(step, done, total)

    # requests

    def count_tokens(self, request: Request) -> int:
        """How many prompt tokens this request has: rendered and encoded as for an answer."""
        return len(self.prompt(request).ids)

    def prompt(self, request: Request) -> Prompt:
        """The request as the model will see it. Raises ApiError for an unknown model and what cannot be rendered."""
        loaded = self.loaded
        if not loaded.card.answers_to(request.model):
            message = f"model: got {request.model!r}, allowed {loaded.card.id!r}"
            raise ApiError(ErrorKind.UNKNOWN_MODEL, message, param="model")
        try:
            segments = loaded.dialect.render(
                request.messages,
                request.tools,
                reasoning=request.reasoning,
                keep_reasoning=self.settings.keep_reasoning,
                generated=self._replay(request, loaded).find,
            )
        except (TemplateError, UnrenderableValue) as error:
            raise ApiError(ErrorKind.INVALID_VALUE, str(error), param="messages") from error
        ids = encode(segments, loaded.vocabulary)
        if not ids:
            raise ApiError(ErrorKind.INVALID_VALUE, "messages: got an empty prompt, allowed some text", param="messages")
        return Prompt(segments, tuple(ids), loaded.dialect.starts_in_reasoning(request.reasoning))

    def submit(self, request: Request, listener: Listener) -> JobHandle:
        """Starts an answer. All that can be known before the first token is raised here as ApiError (T6)."""
        loaded = self.loaded
        began = time.monotonic()
        prompt = self.prompt(request)
        render_seconds = time.monotonic() - began
        room = loaded.model.context_length - len(prompt.ids)
        if room < 1:
            raise ApiError(
                ErrorKind.CONTEXT_OVERFLOW,
                f"prompt is too long: got {len(prompt.ids)} tokens, allowed {loaded.model.context_length - 1} "
                f"(the context of {loaded.model.context_length} less one token of answer)",
                param="messages",
            )
        # K11: more than there is room for is cut to the room; the answer then ends with the context
        max_new_tokens = room if request.max_tokens is None else min(room, request.max_tokens)
        stop_ids = frozenset() if request.ignore_eos else frozenset(loaded.dialect.stop_ids)
        choices, fence = self._choices(request, loaded, prompt)
        answers = [self._answer(request, loaded, prompt, choice, fence) for choice in range(request.num_choices)]
        replay = self._replay(request, loaded)
        prompt_ids = np.array(prompt.ids, dtype=np.int32)
        watcher = opened(self.observer, request, prompt, prompt_ids, render_seconds)
        job = GenerationJob(
            prompt_ids=prompt_ids,
            max_new_tokens=max_new_tokens,
            stop_ids=stop_ids,
            choices=choices,
            listener=AnswerListener(
                request, loaded.vocabulary, answers, stop_ids, replay, prompt.starts_in_reasoning, listener, watcher
            ),
            namespace=cache_namespace(request),
            cache_id=request.cache.cache_id,
            on_round=None if watcher is None or loaded.drafters is None else watcher.on_round,
        )
        try:
            return loaded.loop.submit(job)
        except AdmissionImpossible as error:
            raise ApiError(ErrorKind.CONTEXT_OVERFLOW, str(error), param="messages") from error

    def reader(self, request: Request, starts_in_reasoning: bool) -> ChoiceAnswer:
        """Reads the ids of the first choice as they were read when they came: for whoever looks at an answer again."""
        prompt, fence = Prompt((), (), starts_in_reasoning), self.fence_of(request, starts_in_reasoning)
        return self._answer(request, self.loaded, prompt, 0, fence, logs=False)

    def fence_of(self, request: Request, starts_in_reasoning: bool) -> TokenFence | None:
        """The fence of such a request, new: for whoever walks an answer again."""
        return self._fence(request, self.loaded, Prompt((), (), starts_in_reasoning))

    @staticmethod
    def _replay(request: Request, loaded: Loaded) -> Replay:
        """Own answers of this model, for this client's namespace only."""
        return loaded.dialect.replay(loaded.answers, f"{loaded.identity}\0{cache_namespace(request)}")

    @staticmethod
    def _answer(
        request: Request, loaded: Loaded, prompt: Prompt, choice: int, fence: TokenFence | None, *, logs: bool = True
    ) -> ChoiceAnswer:
        readable: tuple[Tool, ...] = () if isinstance(request.tool_choice, ToolChoiceNone) else request.tools
        parser = loaded.dialect.parser(readable, starts_in_reasoning=prompt.starts_in_reasoning, mode=ParseMode.STRICT)
        layout = loaded.dialect.definition.reasoning
        thinking = () if layout is None else (layout.open_marker.name, layout.close_marker.name)
        known = loaded.dialect.definition.markers if readable else thinking
        scope = (request.protocol, request.request_id)
        is_held = fence is None or not fence.problems
        refusal_after = None if loaded.script is None else loaded.script.answer_to(request).refusal_after
        return ChoiceAnswer(
            loaded.vocabulary,
            parser,
            request.stop,
            choice,
            scope,
            frozenset(known),
            refusal_after=refusal_after,
            check=None if is_held else CallCheck(readable, loaded.fences),
            logs=logs,
        )

    def _choices(self, request: Request, loaded: Loaded, prompt: Prompt) -> tuple[tuple[ChoicePlan, ...], TokenFence | None]:
        """A plan for every choice, and the fence of one of them (a scripted model has none of its own)."""
        given = request.sampling
        for token_id, _ in given.logit_bias:
            if not 0 <= token_id < loaded.vocabulary.size:
                message = f"logit_bias: got token {token_id}, allowed 0 to {loaded.vocabulary.size - 1}"
                raise ApiError(ErrorKind.INVALID_VALUE, message, param="logit_bias")
        seed = secrets.randbits(63) if given.seed is None else given.seed
        watched = self.observer.num_alternatives if self.observer is not None else 0
        plans = []
        fence: TokenFence | None = None
        for choice in range(request.num_choices):
            sampling = SamplingParameters(
                temperature=given.temperature,
                top_p=given.top_p,
                top_k=given.top_k,
                min_p=given.min_p,
                seed=choice_seed(seed, choice),
                presence_penalty=given.presence_penalty,
                frequency_penalty=given.frequency_penalty,
                repetition_penalty=given.repetition_penalty,
                logit_bias=given.logit_bias,
                top_logprobs=max(request.top_logprobs, watched) if request.logprobs else watched or None,
            )
            fence = self._fence(request, loaded, prompt)
            if loaded.script is not None:
                script = token_script(loaded.script, request, loaded.dialect, loaded.vocabulary, loaded.fences)
                plans.append(ChoicePlan(sampling, script=script))
            else:
                plans.append(ChoicePlan(sampling, fence))
        return tuple(plans), fence

    def _fence(self, request: Request, loaded: Loaded, prompt: Prompt) -> TokenFence | None:
        """What holds one choice. Raises ApiError with the path of what must be held and cannot be."""
        wanted = FenceRequest(
            grammar=loaded.dialect.fence_grammar(request.tools) if request.tools else None,
            tools=request.tools,
            tool_choice=request.tool_choice,
            parallel_tool_calls=request.parallel_tool_calls,
            response_format=request.response_format,
            reasoning=loaded.dialect.fence_grammar(()).reasoning,
            starts_in_reasoning=prompt.starts_in_reasoning,
            may_open_reasoning=request.reasoning.enabled is not False,
            policy=FencePolicy(self.settings.fence_policy),
        )
        budgets = [one for one in (request.reasoning.budget_tokens, self.settings.reasoning_budget) if one is not None]
        guard = GuardSettings(
            reasoning_budget=min(budgets, default=None),
            value_budget=self.settings.value_budget,
            call_budget=self.settings.call_budget,
        )
        watches = self.settings.guard and not request.ignore_eos
        return build_fence(wanted, loaded.fences, guard if watches else None)


def belongs_to(namespace: str, owner: str) -> bool:
    """Whether a namespace of the cache is this key's: its own, or one that a salt makes of it."""
    return namespace == owner or namespace.startswith(_SALTED + f"9:namespace={len(owner)}:{owner};")


def cache_namespace(request: Request) -> str:
    """The key's namespace and the client's salt, so that no pair is another pair, nor any name of a key."""
    name, salt = request.cache.namespace, request.cache.salt
    if salt is not None:
        return _SALTED + tagged_fields({"namespace": name, "salt": salt})
    return _SALTED + tagged_fields({"namespace": name}) if name.startswith(_SALTED) else name
