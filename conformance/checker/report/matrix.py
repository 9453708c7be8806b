"""One self-contained HTML page: rules × targets. A cell opens the wire trace that stands behind it.

No script and no file beside it: traces lie in the page, shortened, each once.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from conformance.checker.report.results import Results, RuleResult, read_results, rules_of
from conformance.requirements import load_requirements

_MAX_TRACE = 20_000
_MARKS = {"held": "✓", "broken": "✗", "lapsed": "!", "unsupported": "u", "unproven": "?", "excluded": "–"}
_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:2rem;color:#222}table{border-collapse:collapse}
th,td{border:1px solid #ccc;padding:.2rem .5rem;text-align:left;vertical-align:top}
thead th{position:sticky;top:0;background:#fff}
td.held{background:#dff3df}td.broken{background:#f6c9c9}td.lapsed{background:#fbeeb8}td.unproven,td.unsupported,td.excluded{background:#eee;color:#666}
td a{color:inherit;text-decoration:none;font-weight:bold}
pre{white-space:pre-wrap;word-break:break-all;background:#f7f7f7;padding:.6rem}
section{margin-top:2rem;border-top:1px solid #ccc}
"""


def write_matrix(folders: Sequence[Path], path: Path) -> None:
    """Renders the runs in `folders` into one page."""
    runs = [read_results(folder) for folder in folders]
    tables = [rules_of(run) for run in runs]
    heads = "".join(
        f"<th>{html.escape(str(run.head['run']))}<br><small>{html.escape(_subtitle(run))}</small></th>" for run in runs
    )
    rows: list[str] = []
    details: list[str] = []
    traces: dict[tuple[int, str], str] = {}
    for requirement in load_requirements().values():
        cells = []
        for number, (run, table) in enumerate(zip(runs, tables, strict=True)):
            result = table[requirement.id]
            anchor = f"t{number}-{requirement.id}"
            cells.append(_cell(result, anchor))
            if result.trace or result.finding:
                trace_anchor = traces.setdefault((number, result.trace), f"w{number}-{len(traces)}")
                details.append(_detail(run, result, anchor, trace_anchor))
        name = f"<b>{requirement.id}</b> <small>{requirement.level}</small>"
        rows.append(f"<tr><td>{name}</td><td>{html.escape(requirement.sentence)}</td>{''.join(cells)}</tr>")
    wires = [_wire(runs[number], trace, anchor) for (number, trace), anchor in traces.items() if trace]
    legend = (
        "✓ held · ✗ broken (MUST) · ! broken (SHOULD) · u unsupported: not served · ? unproven: nothing exercised it · "
        "– excluded, with a reason"
    )
    path.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Conformance matrix</title><style>{_STYLE}</style>"
        f"<h1>Conformance matrix</h1><p>{legend}</p><table><thead><tr><th>rule</th><th>what it demands</th>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{''.join(details)}{''.join(wires)}</html>\n",
        encoding="utf-8",
    )


def _subtitle(run: Results) -> str:
    return f"{run.head['model']}, {run.head['profile']}, {run.head['time']}"


def _cell(result: RuleResult, anchor: str) -> str:
    mark = _MARKS[result.state]
    content = f'<a href="#{anchor}">{mark}</a>' if result.trace or result.finding else mark
    return f'<td class="{result.state}">{content}</td>'


def _detail(run: Results, result: RuleResult, anchor: str, trace_anchor: str) -> str:
    title = f"{result.rule} on {run.head['run']}: {result.state} in {result.scenario}"
    link = f'<p><a href="#{trace_anchor}">wire trace {html.escape(result.trace)}</a></p>' if result.trace else ""
    body = ""
    if result.finding is not None:
        finding = result.finding
        lines = [f"{name:8} {finding[key]}" for name, key in _LABELS if finding[key]]
        body = f"<pre>{html.escape(chr(10).join(lines))}</pre>"
    return f'<section id="{anchor}"><h3>{html.escape(title)}</h3>{body}{link}</section>'


_LABELS = (
    ("where", "where"),
    ("event", "event"),
    ("want", "expected"),
    ("got", "got"),
    ("bytes", "raw"),
    ("hurts", "consequence"),
    ("again", "curl"),
)


def _wire(run: Results, trace: str, anchor: str) -> str:
    file = run.folder / trace
    raw = file.read_bytes()[: _MAX_TRACE + 1] if file.is_file() else b"the trace is not there"
    text = raw[:_MAX_TRACE].decode(errors="replace") + ("\n… shortened" if len(raw) > _MAX_TRACE else "")
    title = f"{run.head['run']}: {trace}"
    return f'<section id="{anchor}"><h3>{html.escape(title)}</h3><pre>{html.escape(text)}</pre></section>'
