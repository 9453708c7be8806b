"""`doctor`: proves row-invariance for the loaded model's real shapes on this machine. Exit 0: holds, 1: does not, 2: no model."""

from __future__ import annotations

import argparse
from typing import Any

from zllm_ref.commands.model_arguments import add_model_arguments, engine_settings


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="prove row-invariance for the loaded model on this machine")
    add_model_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import torch
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from zllm_ref.engine import load
    from zllm_ref.model_files import ModelFileError, progress_bar
    from zllm_ref.runtime.proof import prove

    console, errors = Console(), Console(stderr=True, highlight=False)
    try:
        with progress_bar(errors) as report:
            loaded = load(engine_settings(args), report)
    except (ModelFileError, ValueError, OSError, RuntimeError) as error:
        errors.print(f"[bold red]cannot load:[/] {escape(str(error))}", soft_wrap=True)
        return 2
    numerics = loaded.model.numerics
    table = Table(title=f"{loaded.card.id}, {args.dtype}, {numerics.num_threads} threads, {loaded.model.device}")
    for column, justify in (("operation", "left"), ("shape", "left"), ("compared", "right"), ("differ", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("differ, invariance off", justify="right")
    table.add_column("", justify="left")
    failed = 0
    with torch.inference_mode(), console.status("comparing") as status:
        for finding in prove(loaded.model):
            status.update(f"{finding.name} {finding.shape}")
            failed += not finding.holds
            control = "" if finding.control_differing is None else f"{finding.control_differing:,}"
            verdict = "identical" if finding.holds else "[bold red]DIFFERS[/]"
            table.add_row(finding.name, finding.shape, f"{finding.compared:,}", f"{finding.differing:,}", control, verdict)
    console.print(table)
    if failed:
        console.print(
            f"[bold red]{failed} operation(s) depend on neighbouring rows here[/]: cached and cold answers may differ in bits. "
            "Try another --threads or --dtype."
        )
        return 1
    console.print("Every row is independent of its neighbours: cached = cold, chunked = whole, batched = alone, bit for bit.")
    others = "" if loaded.model.device.type == "cuda" else " (--device cuda proves it where there is one)"
    console.print(f"Proved on {loaded.model.device}, for this dtype and these threads; anything else is unproven{others}.")
    return 0
