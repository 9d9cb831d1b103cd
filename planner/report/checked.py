"""What `check` found, for continuous integration: JUnit XML and SARIF.

Sources: the JUnit schema as common servers read it (testsuite, testcase, failure, error); OASIS SARIF 2.1.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from xml.etree import ElementTree

from planner.contract.plan import VERDICTS
from planner.printable import without_controls
from planner.version import __version__

Row = Mapping[str, object]
_RULES = {
    "does_not_fit": "The card's memory, or the host's, does not hold it.",
    "tight": "It fits at best estimates and not at the high ends of what is uncertain.",
    "refused": "The engine would not start it, whatever the memory.",
    "unknown": "Something that matters is not stated or cannot be read.",
}


def failing(row: Row, accept: str) -> bool:
    """Whether the row is something that does not fit, as the exit status has it."""
    return row["verdict"] == "does_not_fit" or (row["verdict"] == "tight" and accept == "fits")


def junit(rows: Sequence[Row], accept: str) -> str:
    """A test suite: a failure for what does not fit, an error for what is refused, unknown or unreadable."""
    errors = [row for row in rows if row["verdict"] in ("refused", "unknown")]
    counts = {"tests": len(rows), "failures": sum(failing(row, accept) for row in rows), "errors": len(errors)}
    suite = ElementTree.Element("testsuite", {"name": "vram-planner check", **{k: str(v) for k, v in counts.items()}})
    for row in rows:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": _clean(row["source"]), "name": _clean(_what(row)) or "?"}
        )
        if failing(row, accept) or row in errors:
            kind = "error" if row in errors else "failure"
            verdict = str(row["verdict"])
            ElementTree.SubElement(case, kind, {"type": verdict, "message": _clean(_said(row))})
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode")


def sarif(rows: Sequence[Row], accept: str) -> str:
    """A result for each row that is not simply accepted."""
    results: list[dict[str, Any]] = []
    for row in rows:
        verdict = str(row["verdict"])
        if verdict in _RULES and (verdict != "tight" or accept == "fits"):
            place = PurePath(_clean(row["source"])).as_posix()
            results.append(
                {
                    "ruleId": verdict,
                    "level": "error" if failing(row, accept) else "warning",
                    "message": {"text": _clean(f"{_what(row)}: {_said(row)}")},
                    "locations": [{"physicalLocation": {"artifactLocation": {"uri": place}}}],
                }
            )
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in _RULES.items()]
    driver = {"name": "vram-planner", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1)


def _what(row: Row) -> str:
    return " ".join(str(row[name]) for name in ("form", "tool", "model") if row[name])


def _said(row: Row) -> str:
    verdict = str(row["verdict"])
    message = f": {row['message']}" if row["message"] else ""
    return f"{VERDICTS.get(verdict, verdict)}{message}"


def _clean(value: object) -> str:
    return " ".join(without_controls(str(value)).split())
