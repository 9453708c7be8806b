"""`draft`: train a block drafter on a model's own answers, or test any drafter on prompts that no training has seen.

train   exit 0: the file is written. 2: no model.
eval    exit 0: the same tokens, and an accepted length of `--at-least`. 1: not so. 2: no model, no drafter.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zllm_ref.commands.argument_numbers import count, positive
from zllm_ref.commands.draft_prompts import Purpose, draft_prompts

if TYPE_CHECKING:
    from rich.console import Console

    from zllm_ref.engine.reading import ReadModel

TRAINING_SEED, HELD_OUT_SEED = 0, 1
NUM_CALIBRATION_PROMPTS = 64


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("draft", help="train a drafter, test a drafter")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    train = actions.add_parser("train", help="train a block drafter (dspark) on the model's own answers")
    _add_common(train, new_tokens=160)
    train.add_argument("--out", type=Path, default=None, help="default: where --draft dspark looks for this model's drafter")
    train.add_argument("--prompts", type=positive, default=4000)
    train.add_argument("--steps", type=positive, default=1500)
    train.add_argument(
        "--answers", type=Path, default=None, help="keep the recorded answers in this file, reuse them if it is there"
    )
    train.add_argument("--seed", type=count, default=TRAINING_SEED)
    train.set_defaults(run=run_train)
    test = actions.add_parser("eval", help="accepted length, acceptance at each place, calibration, on held-out prompts")
    _add_common(test, new_tokens=256)
    test.add_argument("--draft", default="dspark", help="dspark, prompt_lookup, mtp, model")
    test.add_argument("--draft-model", default="", help="its weights, where it needs any that are not packaged")
    test.add_argument("--draft-tokens", type=positive, default=None, help="guesses at once; default: the drafter's own")
    test.add_argument("--prompts", type=positive, default=48)
    test.add_argument("--seed", type=count, default=HELD_OUT_SEED)
    test.add_argument("--temperature", type=float, default=0.0)
    test.add_argument("--lanes", type=positive, default=16)
    test.add_argument("--at-least", type=float, default=0.0, help="fail below this accepted length")
    test.add_argument("--no-compare", action="store_true", help="do not answer the prompts without drafts as well")
    test.set_defaults(run=run_eval)


def _add_common(parser: argparse.ArgumentParser, new_tokens: int) -> None:
    parser.add_argument("--model", default="", help="the target: default model, tiny-*, a GGUF file, a Hugging Face folder")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--new-tokens", type=positive, default=new_tokens, help="of an answer at most")


def run_train(args: argparse.Namespace) -> int:
    import time

    from rich.console import Console
    from rich.markup import escape

    from zllm_ref.commands.draft_training import TrainingRun

    console = Console()
    target = _read(args, console)
    if target is None:
        return 2
    prompts = _encoded(target, draft_prompts(args.prompts, args.seed, Purpose.LEARN))
    calibration = _encoded(target, draft_prompts(NUM_CALIBRATION_PROMPTS, args.seed, Purpose.CALIBRATE))
    started = time.monotonic()
    run = TrainingRun(target, args.seed, args.threads, console)
    try:
        weights = run.train(prompts, calibration, args.new_tokens, args.steps, stop_ids(target), args.answers)
    except ValueError as error:
        console.print(f"[bold red]cannot train:[/] {escape(str(error))}", soft_wrap=True)
        return 2
    out = args.out or _packaged_place(target)
    out.parent.mkdir(parents=True, exist_ok=True)
    weights.save(out)
    console.print(f"{out}: {out.stat().st_size:,} bytes, {time.monotonic() - started:,.0f} s")
    return 0


def run_eval(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.markup import escape

    from zllm_ref.commands.draft_figures import print_figures
    from zllm_ref.commands.draft_training import count_bar
    from zllm_ref.config import DraftSettings, EngineSettings
    from zllm_ref.engine.drafters import drafters_for
    from zllm_ref.runtime.draft.evaluation import DraftEvaluation, EvaluationPlan
    from zllm_ref.runtime.sampler import SamplingParameters

    console = Console()
    target = _read(args, console, drafting=args.draft == "mtp")
    if target is None:
        return 2
    settings = EngineSettings(draft=DraftSettings(drafter=args.draft, model=args.draft_model, most_tokens=args.draft_tokens))
    try:
        factory = drafters_for(settings, target, lambda step, done, total: None)
    except (ValueError, OSError) as error:
        console.print(f"[bold red]no drafter:[/] {escape(str(error))}", soft_wrap=True)
        return 2
    if factory is None:
        console.print("[bold red]no drafter:[/] got --draft none, allowed a drafter to test", soft_wrap=True)
        return 2
    prompts = _encoded(target, draft_prompts(args.prompts, args.seed, Purpose.TEST))
    sampling = SamplingParameters(temperature=args.temperature, seed=args.seed)
    plan = EvaluationPlan(args.new_tokens, args.lanes, sampling)
    evaluation = DraftEvaluation(target.model, target.vocabulary.size, stop_ids(target), plan)
    with count_bar(console, "answering with drafts", len(prompts)) as report:
        drafted, figures = evaluation.answers(prompts, factory, report)
    differing = None
    if not args.no_compare:
        with count_bar(console, "answering without", len(prompts)) as report:
            plain, _ = evaluation.answers(prompts, None, report)
        differing = sum(one != other for one, other in zip(drafted, plain, strict=True))
    print_figures(console, figures, f"{args.draft} for {target.name}, {len(prompts)} held-out prompts")
    if differing is not None:
        verdict = "the same tokens in every answer" if not differing else f"[bold red]{differing} answers differ[/]"
        console.print(f"against answers without drafts: {verdict}", soft_wrap=True)
    return 1 if differing or figures.accepted_length < args.at_least else 0


def stop_ids(target: ReadModel) -> frozenset[int]:
    """Ids that end an answer."""
    from zllm_ref.dialect import dialect_for

    dialect = dialect_for(target.template, target.vocabulary, None)
    return frozenset(dialect.stop_ids) | frozenset(target.vocabulary.stop_ids)


def _read(args: argparse.Namespace, console: Console, drafting: bool = False) -> ReadModel | None:
    import torch
    from rich.console import Console
    from rich.markup import escape

    from zllm_ref.config import ModelSettings
    from zllm_ref.engine.reading import read_model
    from zllm_ref.model_files import ModelFileError, progress_bar

    torch.set_num_threads(args.threads)
    settings = ModelSettings(model=args.model, dtype=args.dtype, threads=args.threads, device=args.device)
    try:
        with progress_bar(Console(stderr=True, highlight=False)) as report:
            return read_model(settings, report, drafting)
    except (ModelFileError, ValueError, OSError, RuntimeError) as error:
        console.print(f"[bold red]cannot load:[/] {escape(str(error))}", soft_wrap=True)
        return None


def _encoded(target: ReadModel, texts: Sequence[str]) -> list[list[int]]:
    """Each text as a conversation of one message, in the model's own template."""
    from zllm_ref.canonical.message import Message, Role, Text
    from zllm_ref.dialect import dialect_for, encode

    dialect = dialect_for(target.template, target.vocabulary, None)
    rendered = [dialect.render([Message(Role.USER, (Text(text),))], ()) for text in texts]
    return [list(encode(segments, target.vocabulary)) for segments in rendered]


def _packaged_place(target: ReadModel) -> Path:
    from zllm_ref.runtime.draft.dspark.weights import packaged_place

    return packaged_place(target.digest)
