"""JUnit XML: a test case a scenario. What is not green is a failure, an error, or a skip with its reason."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from conformance.checker.report.results import Results


def junit_of(results: Results) -> str:
    verdicts = [row["verdict"] for row in results.rows]
    suite = ElementTree.Element(
        "testsuite",
        name=f"conformance {results.head['run']}",
        tests=str(len(verdicts)),
        failures=str(verdicts.count("fail")),
        errors=str(verdicts.count("error")),
        skipped=str(sum(verdict in ("unsupported", "inconclusive", "unproven") for verdict in verdicts)),
    )
    for row in results.rows:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"conformance.{row['protocol']}", name=row["scenario"], time=str(row["seconds"])
        )
        if row["verdict"] == "pass":
            continue
        tag = {"fail": "failure", "error": "error"}.get(row["verdict"], "skipped")
        node = ElementTree.SubElement(case, tag, message=_legal(f"{row['verdict']}: {row['reason']}"))
        node.text = _legal("\n".join(_finding(finding) for finding in row["broken"]))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _finding(finding: dict[str, Any]) -> str:
    return (
        f"{finding['level']} {finding['rule']} at event {finding['event']}, {finding['where']}\n  want {finding['expected']}\n"
        f"  got  {finding['got']}\n  hurts {finding['consequence']}\n  bytes {finding['raw']}\n  {finding['curl']}"
    )


def _legal(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(character if character in "\t\n\r" or ord(character) >= 32 else "\ufffd" for character in text)
