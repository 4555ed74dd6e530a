"""Problems of a configuration, one a line: severity, code, object, place, message."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headrace_xds.cli.console import BLUE, RED, YELLOW, Console

SEVERITIES = ("error", "warning", "info")
"""Worst first."""
_PLURALS = {"error": "errors", "warning": "warnings", "info": "infos"}
_COLORS = {"error": RED, "warning": YELLOW, "info": BLUE}


def severity_of(problem: Mapping[str, Any]) -> str:
    """Severity in lower case."""
    return str(problem["severity"]).lower()


def line(console: Console, problem: Mapping[str, Any]) -> str:
    """One problem for a person."""
    severity = severity_of(problem)
    head = console.paint(severity.capitalize(), _COLORS[severity])
    pad = " " * (len("Warning") - len(severity))
    owner = " ".join(str(problem.get("object") or "").split("/", 1))
    place = f"{problem['file']}:{problem['line']}:{problem['column']}"
    where = f"{owner}, {place}" if owner else place
    path = f"{problem['path']}: " if problem.get("path") else ""
    return f"{head}{pad} [{problem['code']}] ({where}) {path}{problem['message']}"


def summary(problems: Sequence[Mapping[str, Any]]) -> str:
    """How many of each severity, such as ``1 error, 2 warnings``."""
    counts = Counter(severity_of(problem) for problem in problems)
    parts = [
        f"{counts[severity]} {severity if counts[severity] == 1 else _PLURALS[severity]}"
        for severity in SEVERITIES
        if counts[severity]
    ]
    return ", ".join(parts) or "no problems"


def worst(problems: Sequence[Mapping[str, Any]]) -> str | None:
    """Worst severity among the problems; None when there are none."""
    found = {severity_of(problem) for problem in problems}
    return next((severity for severity in SEVERITIES if severity in found), None)
