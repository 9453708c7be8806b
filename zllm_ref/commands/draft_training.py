"""`draft train`, step by step: answers recorded, ids chosen, blocks learnt, chances calibrated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from zllm_ref.engine.reading import ReadModel
from zllm_ref.runtime.draft.dspark.answers import Answer, AnswerRecorder, frequent_ids
from zllm_ref.runtime.draft.dspark.answers_file import read_answers, save_answers
from zllm_ref.runtime.draft.dspark.factory import TargetModel
from zllm_ref.runtime.draft.dspark.shape import DsparkShape
from zllm_ref.runtime.draft.dspark.training import DsparkTrainer, TrainingPlan
from zllm_ref.runtime.draft.dspark.weights import DsparkWeights, fresh_weights
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.sampler import SamplingParameters

NUM_DRAFTED = 12_288
"""Ids that are ever guessed: a quarter of the default model's, and 95 % of what it says to held-out prompts."""
LANES = 64
LINES_WITHOUT_TERMINAL = 10
"""A bar that nobody sees is so many lines."""
SAMPLED_EVERY, TEMPERATURE = 3, 0.7
"""Every so many prompts one is answered a second time, sampled: its rows lead to places where greedy answers do not go."""


class Bar(Protocol):
    def __call__(self, done: int, note: str = "") -> None: ...


@contextmanager
def count_bar(console: Console, title: str, total: int) -> Iterator[Bar]:
    """A bar that counts pieces of work, with a note beside it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total, note="")
        if not console.is_terminal:
            console.print(title)

        told = 0

        def report(done: int, note: str = "") -> None:
            nonlocal told
            progress.update(task, completed=done, note=note)
            if not console.is_terminal and done * LINES_WITHOUT_TERMINAL // total > told:
                told = done * LINES_WITHOUT_TERMINAL // total
                console.print(f"{title}: {done} of {total} {note}")

        yield report


class TrainingRun:
    """Makes the drafter of one target."""

    def __init__(self, target: ReadModel, seed: int, num_threads: int, console: Console) -> None:
        self._target = target
        self._seed = seed
        self._num_threads = num_threads
        self._console = console

    def train(
        self,
        prompts: Sequence[Sequence[int]],
        calibration_prompts: Sequence[Sequence[int]],
        new_tokens: int,
        num_steps: int,
        stop_ids: frozenset[int],
        answers_file: Path | None = None,
    ) -> DsparkWeights:
        """`answers_file`: read where it is there, written where it is not; with one more beside it for the calibration."""
        target, console = self._target, self._console
        model = target.model
        if not isinstance(model, TargetModel):
            raise ValueError(f"draft train: got a {model.architecture} model, allowed one that shares its embedding and its head")
        layers = feature_layers(model.state.growing[0].layers if model.state.growing else 1)
        learnt = self._answers(model, layers, prompts, new_tokens, stop_ids, answers_file)
        kept_file = None if answers_file is None else answers_file.with_name(answers_file.name + ".calibration")
        kept = self._answers(model, layers, calibration_prompts, new_tokens, stop_ids, kept_file, sampled=False)
        console.print(
            f"{len(learnt)} answers to learn from, {_num_tokens(learnt):,} tokens; "
            f"{len(kept)} to calibrate with, {_num_tokens(kept):,} tokens"
        )
        drafted = frequent_ids(learnt, NUM_DRAFTED, target.vocabulary.size)
        shape = DsparkShape(int(model.embedding.shape[1]), layers, len(drafted))
        start = fresh_weights(shape, drafted, self._seed, target.digest)
        plan = TrainingPlan(num_steps=num_steps, seed=self._seed)
        trainer = DsparkTrainer(start, model.embedding, model.head, plan, self._num_threads)
        with count_bar(console, "learning", num_steps) as report:

            def tell(step: int, loss: float, right: list[float]) -> None:
                report(step, f"loss {loss:.3f}, right {' '.join(f'{share:.2f}' for share in right)}")

            trainer.train(learnt, tell)
        trainer.calibrate(kept)
        return trainer.result()

    def _answers(
        self,
        model: Model,
        layers: tuple[int, ...],
        prompts: Sequence[Sequence[int]],
        new_tokens: int,
        stop_ids: frozenset[int],
        file: Path | None,
        sampled: bool = True,
    ) -> list[Answer]:
        again = prompts[::SAMPLED_EVERY] if sampled else ()
        asked = [*prompts, *again]
        samplings = [
            *(SamplingParameters() for _ in prompts),
            *(SamplingParameters(temperature=TEMPERATURE, seed=number) for number in range(len(again))),
        ]
        facts = (self._target.digest, layers, asked, samplings, new_tokens, str(model.numerics))
        recorded_from = hashlib.sha256(repr(facts).encode()).hexdigest()
        if file is not None and file.is_file():
            return read_answers(file, recorded_from)
        recorder = AnswerRecorder(model, self._target.vocabulary.size, stop_ids, layers)
        with count_bar(self._console, "recording answers", len(asked)) as report:
            answers = recorder.record(asked, samplings, new_tokens, LANES, report)
        if file is not None:
            save_answers(file, answers, recorded_from)
        return answers


def feature_layers(num_layers: int) -> tuple[int, ...]:
    """Four of them: from the middle on, and the last one."""
    return tuple(sorted({round((num_layers - 1) * share) for share in (0.42, 0.66, 0.86, 1.0)}))


def _num_tokens(answers: Sequence[Answer]) -> int:
    return sum(len(answer.ids) - answer.prompt_length for answer in answers)
