"""Counts of this process, in the text form that Prometheus reads. Plain integers, changed from the event loop alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

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

    def render(self, num_running: int) -> str:
        lines = ["# TYPE zllm_answers_total counter"]
        for (protocol, end), count in sorted(self.answers.items()):
            lines.append(f'zllm_answers_total{{protocol="{protocol}",end="{end}"}} {count}')
        for name, value in (
            ("prompt_tokens", self.prompt_tokens),
            ("cached_tokens", self.cached_tokens),
            ("completion_tokens", self.completion_tokens),
        ):
            lines += [f"# TYPE zllm_{name}_total counter", f"zllm_{name}_total {value}"]
        lines += ["# TYPE zllm_running_answers gauge", f"zllm_running_answers {num_running}"]
        return "\n".join(lines) + "\n"
