"""What a person sees while the suite runs: a line a scenario, and for a failure all that is needed to mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from conformance.checker.verdict import Finding, Outcome, Verdict

_COLOURS = {
    Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.UNSUPPORTED: "yellow", Verdict.INCONCLUSIVE: "yellow",
    Verdict.UNPROVEN: "yellow", Verdict.ERROR: "magenta",
}  # fmt: skip
_MAX_FINDINGS = 3


def print_outcome(outcome: Outcome, console: Console | None = None) -> None:
    console = console or Console(soft_wrap=True, highlight=False)
    known = " (known failing)" if outcome.is_known else ""
    colour = _COLOURS[outcome.verdict]
    console.print(f"[{colour}]{outcome.verdict.value:12}[/] {escape(outcome.id)}{known}  {escape(outcome.reason[:300])}")
    if outcome.verdict is not Verdict.FAIL:
        return
    broken = [one for one in outcome.broken if one.level == "MUST"]
    for finding in broken[:_MAX_FINDINGS]:
        console.print(escape(text_of(finding)))
    if len(broken) > _MAX_FINDINGS:
        console.print(f"    … {len(broken) - _MAX_FINDINGS} more findings")


def text_of(finding: Finding) -> str:
    """A failure with want, got, the bytes, the consequence and a command that repeats it."""
    lines = [
        f"    {finding.level} {finding.rule}  event {finding.event}  {finding.where}",
        f"      want   {finding.expected[:400]}",
        f"      got    {finding.got[:400]}",
        f"      bytes  {finding.raw[:300]}" if finding.raw else "",
        f"      hurts  {finding.consequence[:400]}",
        f"      trace  {finding.trace}" if finding.trace else "",
        "      again  " + finding.curl[:600].replace("\n", "\n             ") if finding.curl else "",
    ]
    return "\n".join(line for line in lines if line)


def print_absence(outcome: Outcome, console: Console | None = None) -> None:
    """What is not served is said once, not once a scenario."""
    console = console or Console(soft_wrap=True, highlight=False)
    told = f"{outcome.protocol}/{'websocket-' if outcome.absence == 'websocket' else ''}*"
    console.print(f"[yellow]{outcome.verdict:12}[/] {escape(told)}  {escape(outcome.reason[:300])}")


def print_summary(outcomes: Sequence[Outcome], console: Console | None = None) -> None:
    console = console or Console(soft_wrap=True, highlight=False)
    counts = Counter(outcome.verdict for outcome in outcomes)
    console.print("  ".join(f"[{_COLOURS[verdict]}]{counts[verdict]} {verdict.value}[/]" for verdict in Verdict))
    open_ones = [one for one in outcomes if one.verdict in (Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE, Verdict.UNPROVEN)]
    for absence in dict.fromkeys(one.absence for one in outcomes if one.absence):
        console.print(f"{sum(one.absence == absence for one in outcomes)} of these could not be put: {absence} is not served.")
    if open_ones:
        console.print(f"{len(open_ones)} scenarios gave no verdict and are not green.")
