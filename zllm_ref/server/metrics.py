"""Counts of this process, in the text form that Prometheus reads. Plain integers, changed from the event loop alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from zllm_ref.canonical.figure import Figure
from zllm_ref.canonical.usage import Usage


@dataclass(slots=True)
class Metrics:
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (protocol, how it ended): ok, error, cancelled."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def count_usage(self, usage: Usage) -> None:
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.completion_tokens += usage.completion_tokens

    def render(self, num_running: int, others: Sequence[Figure] = ()) -> str:
        """The page; `others` are what the engine says of its cache."""
        registry = CollectorRegistry()
        registry.register(_Figures([*self._own(num_running), *others]))
        return generate_latest(registry).decode("utf-8")

    def _own(self, num_running: int) -> Iterator[Figure]:
        for (protocol, end), count in sorted(self.answers.items()):
            yield Figure("answers", "Answers by how they ended", count, True, {"protocol": protocol, "end": end})
        yield Figure("prompt_tokens", "Tokens of all prompts", self.prompt_tokens, True)
        yield Figure("cached_tokens", "Prompt tokens that were not computed again", self.cached_tokens, True)
        yield Figure("completion_tokens", "Tokens generated", self.completion_tokens, True)
        yield Figure("running_answers", "Answers under way", num_running)


class _Figures(Collector):
    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = list(figures)

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for figure in self._figures:
            kind = CounterMetricFamily if figure.is_total else GaugeMetricFamily
            name = f"zllm_{figure.name}"
            if name not in families:
                families[name] = kind(name, figure.explanation, labels=list(figure.labels))
            families[name].add_metric(list(figure.labels.values()), figure.value)
        yield from families.values()
