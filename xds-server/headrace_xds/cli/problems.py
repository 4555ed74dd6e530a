"""Problems of a configuration, one a line: severity, code, object, place, message."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.config.problems import CODES, Problem, Severity, render_analysis
from headrace_xds.cli.console import BLUE, RED, YELLOW, Console

SEVERITIES = ("error", "warning", "info")
"""Worst first."""
_COLORS = {Severity.ERROR: RED, Severity.WARNING: YELLOW, Severity.INFO: BLUE}
_PLURALS = {"error": "errors", "warning": "warnings", "info": "infos"}


def from_json(value: Mapping[str, Any]) -> Problem:
    """A problem as the admin API shows it; one with a code of a newer server counts as an error."""
    problem = msgspec.convert(value, Problem)
    if problem.code in CODES:
        return problem
    message = f"{problem.code}: {problem.message}"
    return msgspec.structs.replace(problem, code="HR0604", message=message)


def to_json(problem: Problem) -> dict[str, Any]:
    """A problem for programs."""
    plain: dict[str, Any] = msgspec.to_builtins(problem)
    return {"severity": severity_of(problem), **plain}


def severity_of(problem: Problem) -> str:
    """Severity in lower case."""
    return problem.severity.label.lower()


def line(console: Console, problem: Problem) -> str:
    """One problem for a person."""
    label, _, rest = render_analysis(problem).partition(" ")
    return f"{console.paint(label, _COLORS[problem.severity])} {rest}"


def summary(problems: Sequence[Problem]) -> str:
    """How many of each severity, such as ``1 error, 2 warnings``."""
    counts = Counter(severity_of(problem) for problem in problems)
    parts = [
        f"{counts[severity]} {severity if counts[severity] == 1 else _PLURALS[severity]}"
        for severity in SEVERITIES
        if counts[severity]
    ]
    return ", ".join(parts) or "no problems"


def worst(problems: Sequence[Problem]) -> str | None:
    """Worst severity among the problems; None when there are none."""
    found = {severity_of(problem) for problem in problems}
    return next((severity for severity in SEVERITIES if severity in found), None)
