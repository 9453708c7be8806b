"""A bar in the terminal for work that counts bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from zllm_ref.model_files.fetching import Report


@contextmanager
def progress_bar(console: Console) -> Iterator[Report]:
    """Yields a `Report` that draws one bar per step. On a stream that is no terminal it writes one line per step instead."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    steps: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def report(step: str, num_done: int, num_total: int) -> None:
            if step not in steps:
                steps[step] = progress.add_task(step, total=num_total or None)
                if not console.is_terminal:
                    console.print(step)
            progress.update(steps[step], completed=num_done, total=num_total or None)

        yield report
