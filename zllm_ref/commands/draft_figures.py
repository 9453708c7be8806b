"""What `draft eval` prints: accepted length, acceptance at each place, reliability of the chances."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from zllm_ref.runtime.draft.figures import DraftFigures

_BAR_WIDTH = 20


def print_figures(console: Console, figures: DraftFigures, title: str) -> None:
    """Two tables, and two lines that say what the numbers mean."""
    console.print(
        f"{title}: {figures.tokens:,} tokens in {figures.rounds:,} rounds\n"
        f"accepted length {figures.accepted_length:.3f} (tokens a round gives: right guesses and the model's own token); "
        f"right guesses a round {figures.right_per_round:.3f}",
        soft_wrap=True,
    )
    console.print(_places(figures))
    if figures.chances:
        console.print(_reliability(figures))
        console.print(
            f"expected calibration error {figures.calibration_error:.4f} over {len(figures.chances):,} tried guesses "
            "(mean |chance - share right| of the rows above, weighted)",
            soft_wrap=True,
        )


def _places(figures: DraftFigures) -> Table:
    table = Table(title="acceptance by place")
    for column in ("place", "tried", "right", "of tried", "of rounds"):
        table.add_column(column, justify="right")
    table.add_column("right of tried", no_wrap=True)
    for place, (tried, right) in enumerate(zip(figures.tried_at, figures.right_at, strict=True), start=1):
        share = right / max(1, tried)
        table.add_row(str(place), f"{tried:,}", f"{right:,}", f"{share:.3f}", f"{right / figures.rounds:.3f}", _bar(share))
    return table


def _reliability(figures: DraftFigures) -> Table:
    table = Table(title="reliability of the chances")
    for column in ("chance", "guesses", "mean chance", "share right"):
        table.add_column(column, justify="right")
    table.add_column("█ right, │ chance", no_wrap=True)
    for row in figures.bins():
        table.add_row(
            f"{row.low:.1f} to {row.high:.1f}",
            f"{row.tried:,}",
            f"{row.chance:.3f}",
            f"{row.right:.3f}",
            _bar(row.right, row.chance),
        )
    return table


def _bar(share: float, mark: float | None = None) -> str:
    """`share` of 1 as blocks, with a stroke at `mark`."""
    cells = ["█" if cell < round(share * _BAR_WIDTH) else "·" for cell in range(_BAR_WIDTH)]
    if mark is not None:
        cells[min(_BAR_WIDTH - 1, round(mark * _BAR_WIDTH))] = "│"
    return "".join(cells)
