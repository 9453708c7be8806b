"""Turns the reports that the scripts beside this one left into a page: `python ci/peers/matrix.py REPORTS --output FILE`.

Every figure comes from `results.jsonl` and `peer.json` of a run; what was not run is said to be so. No figure is typed by hand.
"""

from __future__ import annotations

import argparse
import json
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
STATES = {"held": "✓", "broken": "✗", "lapsed": "!", "unproven": "?", "excluded": "–"}
ORDER = ("zllm_ref", "zllm_ref scripted", "llama.cpp", "LiteLLM", "transformers serve", "vLLM")
MAX_TEXT = 90


@dataclass(frozen=True)
class Target:
    """One run: what the suite wrote, and what was run."""

    facts: dict[str, Any]
    results: Results
    rules: dict[str, RuleResult]

    @property
    def name(self) -> str:
        return str(self.facts["target"])


def main(reports: Path, output: Path | None) -> int:
    facts = [json.loads(path.read_text(encoding="utf-8")) | {"folder": path.parent} for path in reports.glob("*/peer.json")]
    facts.sort(key=lambda one: ORDER.index(one["target"]) if one["target"] in ORDER else len(ORDER))
    targets = []
    for one in facts:
        if "problem" not in one:
            results = read_results(one["folder"])
            targets.append(Target(one, results, rules_of(results)))
    if not targets:
        print(f"matrix: no run in {reports}", file=sys.stderr)
        return 2
    page = "\n".join(_page(targets, [one for one in facts if "problem" in one])) + "\n"
    if output is None:
        print(page, end="")
    else:
        output.write_text(page, encoding="utf-8")
    return 0


def _page(targets: Sequence[Target], not_run: Sequence[dict[str, Any]]) -> Iterator[str]:
    dates = sorted(target.facts["began"][:10] for target in targets)
    yield "# Peers: the suite on other servers"
    yield ""
    yield (
        f"Written by `ci/peers/matrix.py` from runs of `ci/peers/run` on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}. "
        "It says what these versions did there, on one small model, and nothing about others. The model is the default one "
        "(SmolLM2-135M-Instruct), whose own chat template renders no tools; a small model often does not do what a scenario "
        "needs, and then there is no verdict. A rule is cited by its id; `python -m conformance rules` prints them with sources."
    )
    yield ""
    yield (
        "Machine: "
        + "; ".join(dict.fromkeys(target.facts["machine"] for target in targets))
        + (". Other work ran beside it, as the load shows: times and timeouts say nothing about a server's speed.")
    )
    yield from ("", "## What was run", "")
    yield from _runs(targets, not_run)
    yield from ("", "## Rules broken, by target", "")
    yield from _deviations(targets)
    yield from ("", "## Scenarios × targets", "")
    yield "✓ pass · ✗ fail (a MUST) · u unsupported: refused in a clean error · ~ inconclusive: the model did not do its part ·"
    yield "? unproven: could not be put to this target · E error: no answer in time, 5xx, broken off · blank: not run."
    yield ""
    yield from _scenarios(targets)
    yield from ("", "## Rules × targets", "")
    yield "✓ held wherever it was exercised · ✗ broken (MUST) · ! broken (SHOULD) · ? unproven: nothing exercised it."
    yield ""
    yield from _rules(targets)


def _runs(targets: Sequence[Target], not_run: Sequence[dict[str, Any]]) -> Iterator[str]:
    in_all = len(all_scenarios())
    yield f"| target | versions | serves | began, took | scenarios of {in_all} | verdicts | rules |"
    yield "| --- | --- | --- | --- | ---: | --- | --- |"
    for target in targets:
        facts = target.facts
        versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        load = " to ".join(str(value) for value in facts["load_before_and_after"])
        took = f"{facts['began'][11:16]} UTC, {facts['seconds']} s; load {load}; {facts['request_seconds']:g} s a request"
        done = f"{len(target.results.rows)}" + (" (time was up)" if facts["suite_exit"] == 3 else "")
        done += f" (asked: `{' '.join(facts['suite_arguments'])}`)" if facts.get("suite_arguments") else ""
        verdicts = _counts(Counter(row["verdict"] for row in target.results.rows), VERDICTS)
        states = _counts(Counter(result.state for result in target.rules.values()), dict.fromkeys(STATES, ""))
        served = f"{facts['served']}; {facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
        served += f"; at most {facts['memory_gibibytes']:g} GiB of data" if "memory_gibibytes" in facts else ""
        yield _row(target.name, versions, served, took, done, verdicts, states)
    for facts in not_run:
        yield _row(facts["target"], "", "", "**not run**: " + facts["problem"], "0", "", "")
    commits = ", ".join(dict.fromkeys(target.facts["suite_commit"] for target in targets))
    yield ""
    yield f"Commit of the suite: {commits}. Profile: {', '.join(dict.fromkeys(t.results.head['profile'] for t in targets))}."


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
    return f"`{line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + '…'}`" if line else ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, help="the --report-dir of the runs")
    parser.add_argument("--output", type=Path, help="default: standard output")
    given = parser.parse_args()
    sys.exit(main(given.reports, given.output))
