"""Fenced answers of real models with random weights, and how many illegal calls were among them.

    ci/fence_generations                                             10,000 answers over two small vocabularies
    ci/fence_generations --vocabulary SmolLM2.gguf --vocabulary deepseek/tokenizer.json --count 10000
    ci/fence_generations --only glm-4.7 --first 1234 --count 9       a case again, by its number

Every dialect x {plain rounds, rounds of four lanes, drafts verified} x {auto, required, named}, over random schemas. A
vocabulary is a GGUF file, a `tokenizer.json` or a `tekken.json`; it is used with the dialects' markers added, and (`--text-mode`)
as it is: the markers that it lacks are spelled then. An answer must come to its end, the dialect's strict parser must have no
remark, every call must be one that was allowed, `jsonschema` must accept its arguments, and all paths must say the same ids.
Exit 1: one did not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ci.vocabulary_files import read, with_markers
from tests.fence.model_answers import CHOICES, PATHS, Case, FencedModel
from tests.fence.vocabularies import trained_vocabulary
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.tokenizer import byte_vocabulary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=Path, action="append", default=[], help="default: one token a byte, and a small one")
    parser.add_argument("--text-mode", action="store_true", help="also each vocabulary without the markers that it lacks")
    parser.add_argument("--count", type=int, default=10_000, help="answers in all, at least")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", action="append", choices=sorted(DEFINITIONS), help="dialects (default: all)")
    parser.add_argument("--model", action="append", default=[], help="seeded models in turn (default: tiny-llama, tiny-qwen3)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    models = _models(args)
    dialects = args.only or list(DEFINITIONS)
    illegal: list[str] = []
    answers: Counter[tuple[str, str, str]] = Counter()
    calls: Counter[str] = Counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar, suppress(KeyboardInterrupt):  # what was seen until then is shown
        shown = bar.add_task("answers", total=args.count)
        number = args.first
        while sum(answers.values()) < args.count and len(illegal) <= 20:
            name, model = models[number % len(models)]
            for dialect in dialects:
                for choice in CHOICES:
                    try:
                        judged = model.answers(Case(number, dialect, choice))
                    except AssertionError as error:
                        illegal.append(f"{name}: {error}")
                        bar.console.print(illegal[-1], markup=False, highlight=False)
                        continue
                    for path, found in judged.items():
                        answers[dialect, path, choice] += len(found)
                        calls[name] += sum(one.num_calls for one in found)
                        bar.advance(shown, len(found))
            number += 1
    _print(answers, calls, illegal)
    return 1 if illegal else 0


def _models(args: argparse.Namespace) -> list[tuple[str, FencedModel]]:
    names = args.model or ["tiny-llama", "tiny-qwen3"]
    made_here = [("bytes", byte_vocabulary()), ("trained on tags", trained_vocabulary())]
    vocabularies = made_here if not args.vocabulary else []
    for path in args.vocabulary:
        found = read(path)
        label = path.parent.name + "/" + path.name if path.suffix == ".json" else path.name
        vocabularies.append((label, with_markers(found)))
        if args.text_mode:
            vocabularies.append((f"{label} as it is", found))
    made = []
    for index, (label, vocabulary) in enumerate(vocabularies):
        model = names[index % len(names)]
        made.append((f"{model}, {label} ({vocabulary.size} ids)", FencedModel(model, vocabulary)))
    return made


def _print(answers: Counter[tuple[str, str, str]], calls: Counter[str], illegal: list[str]) -> None:
    print(f"{'answers':16}" + "".join(f"{path + ' ' + choice:>23}" for path in PATHS for choice in CHOICES))
    for dialect in dict.fromkeys(key[0] for key in answers):
        print(f"{dialect:16}" + "".join(f"{answers[dialect, path, choice]:23}" for path in PATHS for choice in CHOICES))
    for name, count in calls.items():
        print(f"{count:7} calls  {name}")
    print(f"{sum(answers.values())} answers, {sum(calls.values())} calls, {len(illegal)} illegal")


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
