"""Turns the reports that the scripts beside this one left into a page: `python ci/peers/matrix.py REPORTS… --output FILE`.

Every figure comes from `results.jsonl` and `peer.json` of a run; what was not run is said to be so. No figure is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from conformance.checker.report.results import Results, RuleResult, read_results, rules_of
from conformance.checker.scenarios import all_scenarios
from conformance.requirements import load_requirements

VERDICTS = {"pass": "✓", "fail": "✗", "unsupported": "u", "inconclusive": "~", "unproven": "?", "error": "E"}
STATES = {"held": "✓", "broken": "✗", "lapsed": "!", "unsupported": "u", "unproven": "?", "excluded": "–"}
ORDER = ("zllm_ref", "zllm_ref scripted", "llama.cpp", "LiteLLM", "transformers serve", "vLLM")
MAX_TEXT = 90
OUT_OF_TIME = 3


@dataclass(frozen=True)
class Target:
    """One target: what was run, in one part or several, and all rows that the suite wrote."""

    parts: list[dict[str, Any]]
    results: Results
    rules: dict[str, RuleResult]

    @property
    def name(self) -> str:
        return str(self.parts[0]["target"])


def main(reports: Sequence[Path], output: Path | None) -> int:
    found = [path for folder in reports for path in sorted(folder.glob("*/peer.json"))]
    facts = [json.loads(path.read_text(encoding="utf-8")) | {"folder": path.parent} for path in found]
    names = sorted(
        dict.fromkeys(one["target"] for one in facts), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)
    )
    targets, not_run = [], []
    for name in names:
        parts = [one for one in facts if one["target"] == name and "problem" not in one]
        if parts:
            targets.append(_joined(parts))
        else:
            not_run.append(next(one for one in facts if one["target"] == name))
    if not targets:
        print(f"matrix: no run in {', '.join(map(str, reports))}", file=sys.stderr)
        return 2
    page = "\n".join(_page(targets, not_run)) + "\n"
    if output is None:
        print(page, end="")
    else:
        output.write_text(page, encoding="utf-8")
    return 0


def _joined(parts: list[dict[str, Any]]) -> Target:
    """Several parts of one target as one run; a scenario that two parts hold counts as the later part says."""
    runs = [read_results(part["folder"]) for part in parts]
    rows = {(row["protocol"], row["scenario"]): row for run in runs for row in run.rows}
    results = Results(runs[0].folder, runs[0].head, list(rows.values()))
    return Target(parts, results, rules_of(results))


def _page(targets: Sequence[Target], not_run: Sequence[dict[str, Any]]) -> Iterator[str]:
    parts = [part for target in targets for part in target.parts]
    days = sorted(part["began"][:10] for part in parts)
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    yield "# Peers: the suite on other servers"
    yield ""
    yield (
        f"Written by `ci/peers/matrix.py` from runs of the scripts beside it on {when}. "
        "It says what these versions did there, on one small model, and nothing about others. The model is the default one "
        "(SmolLM2-135M-Instruct), whose own chat template renders no tools; a small model often does not do what a scenario "
        "needs, and then there is no verdict. A rule is cited by its id; `python -m conformance rules` prints them with sources."
    )
    yield ""
    yield (
        "Machine: "
        + "; ".join(dict.fromkeys(part["machine"] for part in parts))
        + (". Other work ran beside it, as the load shows: times and timeouts say nothing about a server's speed.")
    )
    yield from ("", "## What was run", "")
    yield from _runs(targets, not_run)
    yield from ("", "## Rules broken, by target", "")
    yield from _deviations(targets)
    yield from ("", "## Scenarios × targets", "")
    yield "✓ pass · ✗ fail (a MUST) · u unsupported: refused in a clean error, or not served at all ·"
    yield "~ inconclusive: the model did not do its part ·"
    yield "? unproven: could not be put to this target · E error: no answer in time, 5xx, broken off · blank: not run there."
    yield ""
    yield from _scenarios(targets)
    yield from ("", "### What is not served", "")
    yield from _absences(targets)
    yield from ("", "### What E stands for", "")
    yield from _errors(targets)
    yield from ("", "## Rules × targets", "")
    yield "✓ held wherever it was exercised · ✗ broken (MUST) · ! broken (SHOULD) · u unsupported: its protocol is not served ·"
    yield "? unproven: nothing exercised it."
    yield ""
    yield from _rules(targets)


def _runs(targets: Sequence[Target], not_run: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| target | versions | serves | began, took | scenarios run | verdicts | rules |"
    yield "| --- | --- | --- | --- | ---: | --- | --- |"
    for target in targets:
        verdicts = _counts(Counter(row["verdict"] for row in target.results.rows), VERDICTS)
        states = _counts(Counter(result.state for result in target.rules.values()), dict.fromkeys(STATES, ""))
        versions = ", ".join(f"{name} {version}" for name, version in target.parts[0]["versions"].items())
        parts = "; then ".join(map(_part, target.parts))
        yield _row(target.name, versions, _served(target.parts[0]), parts, str(len(target.results.rows)), verdicts, states)
    for facts in not_run:
        yield _row(facts["target"], "", "", "**not run**: " + facts["problem"], "0", "", "")
    profiles = dict.fromkeys(target.results.head["profile"] for target in targets)
    yield from ("", f"Profile: {', '.join(profiles)}.")


def _part(part: dict[str, Any]) -> str:
    load = " to ".join(str(value) for value in part["load_before_and_after"])
    asked = f"; asked for `{' '.join(part['suite_arguments'])}`" if part.get("suite_arguments") else ""
    end = "; ended there, time being up" if part["suite_exit"] == OUT_OF_TIME else ""
    return (
        f"{part['began'][11:16]} UTC, {part['seconds']} s{end}; load {load}; {part['request_seconds']:g} s a request; "
        f"suite at {part['suite_commit']}{asked}"
    )


def _served(part: dict[str, Any]) -> str:
    threads = f"{part['threads']} thread{'s' if part['threads'] > 1 else ''}"
    limit = f"; at most {part['memory_gibibytes']:g} GiB of data" if "memory_gibibytes" in part else ""
    return f"{part['served']}; {threads}{limit}"


def _deviations(targets: Sequence[Target]) -> Iterator[str]:
    yield "MUST rules only; how many scenarios saw it, and the first finding as an example."
    for target in targets:
        seen: Counter[str] = Counter()
        for row in target.results.rows:
            seen.update({finding["rule"] for finding in row["broken"] if finding["level"] == "MUST"})
        yield from ("", f"### {target.name}", "")
        if not seen:
            yield "None."
            continue
        yield "| rule | scenarios | first in | where | want | got |"
        yield "| --- | ---: | --- | --- | --- | --- |"
        for rule in load_requirements():
            result = target.rules[rule]
            if result.state == "broken" and result.finding is not None:
                finding = result.finding
                yield _row(
                    rule,
                    str(seen[rule]),
                    result.scenario,
                    _code(finding["where"]),
                    _code(finding["expected"]),
                    _code(finding["got"]),
                )


def _scenarios(targets: Sequence[Target]) -> Iterator[str]:
    verdicts = [{(row["protocol"], row["scenario"]): row["verdict"] for row in target.results.rows} for target in targets]
    yield _row("scenario", *(target.name for target in targets))
    yield _row("---", *(":---:" for _ in targets))
    for scenario in sorted(all_scenarios(), key=lambda one: ("chat", "responses", "messages").index(one.protocol)):
        key = (scenario.protocol, scenario.name)
        yield _row(scenario.id, *(VERDICTS.get(table.get(key, ""), "") for table in verdicts))


def _absences(targets: Sequence[Target]) -> Iterator[str]:
    """One cause a row: how many scenarios could not be put for it, and what the target said."""
    found = Counter(
        (target.name, row["absence"], row["reason"]) for target in targets for row in target.results.rows if row["absence"]
    )
    if not found:
        yield "There is none."
        return
    yield "| target | what | scenarios | evidence |"
    yield "| --- | --- | ---: | --- |"
    for (name, what, reason), count in found.items():
        yield _row(name, what, str(count), _code(re.sub(r"(https?|wss?)://[^/\s]+", "", reason.partition(": ")[2])))


def _errors(targets: Sequence[Target]) -> Iterator[str]:
    found = [(target.name, row) for target in targets for row in target.results.rows if row["verdict"] == "error"]
    if not found:
        yield "There is none."
        return
    yield "| target | scenario | what came |"
    yield "| --- | --- | --- |"
    for name, row in found:
        what = re.sub(r"[A-Z]+ (https?|wss?)://\S+: ", "", row["reason"])  # the address is this machine's
        yield _row(name, f"{row['protocol']}/{row['scenario']}", _code(what))


def _rules(targets: Sequence[Target]) -> Iterator[str]:
    yield _row("rule", "level", "what it demands", *(target.name for target in targets))
    yield _row("---", "---", "---", *(":---:" for _ in targets))
    silent = []
    for requirement in load_requirements().values():
        states = [target.rules[requirement.id].state for target in targets]
        if set(states) <= {"unproven", "excluded"}:
            silent.append(requirement.id)
            continue
        sentence = requirement.sentence.replace("|", "\\|")
        yield _row(requirement.id, requirement.level, sentence, *(STATES[state] for state in states))
    yield from ("", f"Nothing exercised or all excluded: {', '.join(silent) or 'none'}.")


def _counts(counts: Counter[str], marks: dict[str, str]) -> str:
    return ", ".join(f"{counts[name]} {name} {mark}".strip() for name, mark in marks.items() if counts[name])


def _code(text: object) -> str:
    """One short line that a table can hold."""
    line = " ".join(str(text).split()).replace("|", "\\|").replace("`", "'")
    return f"`{line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + '…'}`" if line else "empty"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path, help="the --report-dir of the runs; a target may be in several")
    parser.add_argument("--output", type=Path, help="default: standard output")
    given = parser.parse_args()
    sys.exit(main(given.reports, given.output))
