"""Hears the runtime (ids) and tells the server (events). One per request; lives in the runtime's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import AlternativeToken, Event, Failed, Finished, FinishReason, Started, TokenLogprob
from zllm_ref.canonical.request import Request
from zllm_ref.canonical.usage import Usage
from zllm_ref.dialect import Replay
from zllm_ref.engine.answer import ChoiceAnswer
from zllm_ref.engine.observer import AnswerObserver
from zllm_ref.runtime.sampler import SampledToken
from zllm_ref.runtime.sequence import EndReason, PromptReport, Timings
from zllm_ref.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger("zllm_ref.requests")

Listener = Callable[[Sequence[Event]], None]

_FINISH_REASONS = {
    EndReason.STOP_TOKEN: FinishReason.END,
    EndReason.STOPPED: FinishReason.END,
    EndReason.MAX_TOKENS: FinishReason.LENGTH,
    EndReason.CONTEXT_FULL: FinishReason.CONTEXT_FULL,
    EndReason.CANCELLED: FinishReason.END,
}


class AnswerListener:
    """Implements the runtime's `Listener` for one request."""

    def __init__(
        self,
        request: Request,
        vocabulary: Vocabulary,
        choices: Sequence[ChoiceAnswer],
        stop_ids: frozenset[int],
        replay: Replay,
        starts_in_reasoning: bool,
        listener: Listener,
        observer: AnswerObserver | None = None,
    ) -> None:
        self._request = request
        self._vocabulary = vocabulary
        self._choices = choices
        self._stop_ids = stop_ids
        self._replay = replay
        self._starts_in_reasoning = starts_in_reasoning
        self._listener = listener
        self._observer = observer
        self._num_tokens = 0
        self._report: PromptReport | None = None

    def on_started(self, report: PromptReport) -> None:
        self._report = report
        if self._observer is not None:
            self._observer.on_started(report)
        self._listener([Started(self._usage(), report.cache_id)])

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> bool:
        if self._observer is not None:
            self._observer.on_tokens(choice, tokens)
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
        finish = _FINISH_REASONS[reason]
        if answer.stop_string is not None:
            finish = FinishReason.STOP_STRING
        elif answer.has_calls and finish is FinishReason.END:
            finish = FinishReason.TOOL_CALLS
        elif answer.has_refused and finish is FinishReason.END:
            finish = FinishReason.REFUSAL
        if answer.is_whole:
            settings = self._request.reasoning
            self._replay.remember(answer.message(), answer.ids, settings, starts_in_reasoning=self._starts_in_reasoning)
        if self._observer is not None:
            self._observer.on_ended(choice, finish)
        events.append(Finished(finish, self._usage(), answer.stop_string, choice))
        self._listener(events)

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        if self._observer is not None:
            self._observer.on_closed(kept_cache_id, timings)
        usage = self._usage()
        report = self._report
        _log.info(
            "request=%s protocol=%s prompt=%d cached=%d tier=%s computed=%d out=%d queue_seconds=%.3f restore_seconds=%.3f "
            "prefill_seconds=%.3f ttft_seconds=%.3f decode_seconds=%.3f kept=%s",
            self._request.request_id,
            self._request.protocol,
            usage.prompt_tokens,
            usage.cached_tokens,
            report.cache_tier if report is not None and report.cache_tier else "cold",
            usage.prompt_tokens - usage.cached_tokens,
            usage.completion_tokens,
            timings.queue,
            timings.restore,
            timings.prefill,
            timings.first_token,
            timings.decode,
            kept_cache_id or "no",
        )

    def on_failed(self, message: str) -> None:
        if self._observer is not None:
            self._observer.on_failed(message)
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
        if token.logprob is None or not self._request.logprobs:
            return None
        spell = self._vocabulary.token_bytes
        top = tuple(
            AlternativeToken(spell(token_id).decode("utf-8", "replace"), spell(token_id), logprob)
            for token_id, logprob in token.top[: self._request.top_logprobs]
        )
        spelled = spell(token.token_id)
        return TokenLogprob(spelled.decode("utf-8", "replace"), spelled, token.logprob, top)
