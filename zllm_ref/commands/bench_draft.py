"""`bench-draft`: what guessing gains or costs, against the same code without it, on the same prompts, in the same run.

    plain   | turn |      | turn |      | turn |          whoever has fewer tokens goes next: a machine that is busy
    drafts  |      | turn |      | turn |      | turn     for a while slows both

Two kinds of work: an agent's turn that writes a file again, and text that repeats nothing. Tokens must be the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from zllm_ref.commands.argument_numbers import positive
from zllm_ref.commands.model_arguments import add_model_arguments, engine_settings

if TYPE_CHECKING:
    from zllm_ref.engine import Loaded
    from zllm_ref.runtime.loop import RuntimeLoop
    from zllm_ref.runtime.sampler import SampledToken, SamplingParameters
    from zllm_ref.runtime.sequence import EndReason, PromptReport, RoundReport, Timings

_FILE = '''"""Durations written as text, such as 1h30m, and back."""

import re

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
PATTERN = re.compile(r"(\\d+)([dhms])")


def parse_duration(text: str) -> int:
    """Seconds in a text such as 1h30m."""
    total = 0
    for number, unit in PATTERN.findall(text):
        total += int(number) * UNITS[unit]
    if total == 0:
        raise ValueError(f"no duration in {text!r}")
    return total


def format_duration(seconds: int) -> str:
    """The text of a number of seconds, without parts that are zero."""
    parts = []
    for unit, size in UNITS.items():
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
'''
_TURN_TOKENS = 8
_RANDOM_PROMPT_TOKENS = 256
_STATE_BYTES = 1 << 30


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("bench-draft", help="measure what guessing gains or costs")
    add_model_arguments(parser)
    parser.add_argument("--repeats", type=positive, default=3, help="runs of each kind of work; the median counts")
    parser.add_argument("--tokens", type=positive, default=200, help="tokens of an answer at most")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import torch
    from rich.console import Console
    from rich.markup import escape

    from zllm_ref.engine import load
    from zllm_ref.model_files import ModelFileError, progress_bar

    errors = Console(stderr=True, highlight=False)
    if args.draft == "none":
        args.draft = "prompt_lookup"
    try:
        with progress_bar(errors) as report:
            loaded = load(engine_settings(args), report)
    except (ModelFileError, ValueError, OSError, RuntimeError) as error:
        errors.print(f"[bold red]cannot load:[/] {escape(str(error))}", soft_wrap=True)
        return 2
    measured = []
    try:
        with torch.inference_mode(), errors.status("measuring") as status:
            for work in _works(loaded, args.tokens):
                status.update(work.name)
                measured.append(measure(loaded, work, args.repeats))
    except RuntimeError as error:
        errors.print(f"[bold red]cannot measure:[/] {escape(str(error))}", soft_wrap=True)
        return 2
    result = {
        "model": loaded.card.id,
        "dtype": args.dtype,
        "threads": args.threads,
        "device": str(loaded.model.device),
        "drafter": args.draft,
        "works": {figures.pop("name"): figures for figures in measured},
    }
    if args.json:
        json.dump(result, sys.stdout)
        print()
    else:
        _print_table(result)
    return 0 if all(figures["same_tokens"] for figures in result["works"].values()) else 1


@dataclass(frozen=True)
class Work:
    """A prompt, and how its answer is sampled."""

    name: str
    prompt: Sequence[int]
    sampling: SamplingParameters
    stop_ids: frozenset[int]
    num_tokens: int


@dataclass
class Side:
    """One loop at work on the job; seconds and tokens of its decode rounds."""

    loop: RuntimeLoop
    ids: list[int] = field(default_factory=list)
    rounds: list[RoundReport] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of this process's threads: what a busy machine does not spoil as much."""
    num_decoded: int = 0
    has_started: bool = False
    is_over: bool = False
    failure: str | None = None

    def on_started(self, report: PromptReport) -> None:
        self.has_started = True

    def on_tokens(self, choice: int, tokens: Sequence[SampledToken]) -> bool:
        self.ids += [token.token_id for token in tokens]
        return False

    def on_ended(self, choice: int, reason: EndReason, stop_token: int | None) -> None:
        self.is_over = True

    def on_closed(self, kept_cache_id: str | None, timings: Timings) -> None:
        pass

    def on_failed(self, message: str) -> None:
        self.failure = message

    def begin(self) -> None:
        """Computes the prompt. Raises RuntimeError when the job fails, as `take_turn` does."""
        while not self.has_started:
            self._step()

    def take_turn(self) -> None:
        """Decodes some tokens."""
        before = len(self.ids)
        started, started_cpu = time.perf_counter(), time.process_time()
        while len(self.ids) < before + _TURN_TOKENS and not self.is_over:
            self._step()
        self.seconds += time.perf_counter() - started
        self.cpu_seconds += time.process_time() - started_cpu
        self.num_decoded += len(self.ids) - before

    def _step(self) -> None:
        self.loop.step()
        if self.failure is not None:
            raise RuntimeError(self.failure)


def measure(loaded: Loaded, work: Work, num_repeats: int) -> dict[str, Any]:
    """Runs the work on both sides, turn by turn."""
    loops = [_loop(loaded, has_drafts) for has_drafts in (False, True)]
    ratios, cpu_ratios, rates, same, rounds = [], [], [], True, list[Any]()
    for _ in range(num_repeats):
        plain, drafted = (_begin(loop, work) for loop in loops)
        while not (plain.is_over and drafted.is_over):
            running = [side for side in (plain, drafted) if not side.is_over]
            min(running, key=lambda side: len(side.ids)).take_turn()
        same = same and plain.ids == drafted.ids
        rates.append((plain.num_decoded / plain.seconds, drafted.num_decoded / drafted.seconds))
        ratios.append(rates[-1][1] / rates[-1][0])
        cpu_ratios.append(plain.cpu_seconds / plain.num_decoded * drafted.num_decoded / drafted.cpu_seconds)
        rounds += drafted.rounds
    counts = loops[1].draft_counts
    return {
        "name": work.name,
        "prompt_tokens": len(work.prompt),
        "answer_tokens": len(plain.ids),
        "same_tokens": same,
        "plain_tokens_per_second": median(rate for rate, _ in rates),
        "draft_tokens_per_second": median(rate for _, rate in rates),
        "ratio": median(ratios),
        "ratios": ratios,
        "cpu_ratio": median(cpu_ratios),
        "rounds": len(rounds),
        "rounds_with_drafts": counts.rounds,
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "tokens_per_round": sum(one.num_tokens for one in rounds) / max(1, len(rounds)),
    }


def _works(loaded: Loaded, num_tokens: int) -> list[Work]:
    import torch

    from zllm_ref.canonical.message import Message, Role, Text
    from zllm_ref.canonical.request import ReasoningSettings
    from zllm_ref.dialect import encode
    from zllm_ref.runtime.sampler import SamplingParameters

    question = (
        f"Here is the file duration.py:\n\n```python\n{_FILE}```\n\nWrite it again, complete and unchanged, in a code block."
    )
    segments = loaded.dialect.render(
        [Message(Role.USER, (Text(question),))],
        (),
        reasoning=ReasoningSettings(),
        keep_reasoning=False,
        generated=lambda *about: None,
    )
    generator = torch.Generator().manual_seed(1)
    random_ids = torch.randint(0, loaded.vocabulary.size, (_RANDOM_PROMPT_TOKENS,), generator=generator).tolist()
    stop_ids = frozenset(loaded.dialect.stop_ids)
    return [
        Work("a file again", encode(segments, loaded.vocabulary), SamplingParameters(), stop_ids, num_tokens),
        Work("random text", random_ids, SamplingParameters(temperature=1.0, seed=1), frozenset(), num_tokens),
    ]


def _loop(loaded: Loaded, has_drafts: bool) -> RuntimeLoop:
    from zllm_ref.cache.resident import PrefixCache
    from zllm_ref.runtime.loop import RuntimeLoop

    cache = PrefixCache(loaded.model.state.layout(), _STATE_BYTES, identity="bench")
    drafters = loaded.drafters if has_drafts else None
    return RuntimeLoop(loaded.model, cache, num_token_ids=loaded.vocabulary.size, drafters=drafters)


def _begin(loop: RuntimeLoop, work: Work) -> Side:
    import numpy as np

    from zllm_ref.runtime.sequence import ChoicePlan, GenerationJob

    side = Side(loop)
    prompt = np.array(work.prompt, dtype=np.int32)
    plans = (ChoicePlan(work.sampling),)
    loop.submit(GenerationJob(prompt, work.num_tokens, work.stop_ids, plans, side, on_round=side.rounds.append))
    side.begin()
    return side


_ROWS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "tokens": lambda figures: f"{figures['answer_tokens']:,}",
    "plain tokens/s": lambda figures: f"{figures['plain_tokens_per_second']:.1f}",
    "drafts tokens/s": lambda figures: f"{figures['draft_tokens_per_second']:.1f}",
    "drafts / plain": lambda figures: f"{figures['ratio']:.2f}",
    "least … most": lambda figures: f"{min(figures['ratios']):.2f} … {max(figures['ratios']):.2f}",
    "by CPU time": lambda figures: f"{figures['cpu_ratio']:.2f}",
    "drafted": lambda figures: f"{figures['drafted']:,}",
    "accepted": lambda figures: f"{figures['accepted']:,}",
    "tokens a round": lambda figures: f"{figures['tokens_per_round']:.2f}",
    "same tokens": lambda figures: "yes" if figures["same_tokens"] else "[bold red]NO[/]",
}
"""What the table tells, downwards: side by side they are wider than a terminal."""


def _print_table(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    title = (
        f"{result['model']}, {result['dtype']}, {result['threads']} threads, {result['device']}, drafts by {result['drafter']}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in result["works"]:
        table.add_column(name, justify="right")
    works = result["works"].values()
    for name, show in _ROWS.items():
        table.add_row(name, *(show(figures) for figures in works))
    Console().print(table)
