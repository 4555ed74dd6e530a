"""Thousands of spoilt configurations against the loader, the compiler and a real Envoy."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headrace_xds import envoy_schema
from headrace_xds.binaries import envoy
from headrace_xds.gate.gate import Gate
from tests.fakes.config_fuzz import fuzz

GOALS: Mapping[str, tuple[str, float]] = {
    "crashes": ("<=", 0.0),
    "refused_by_envoy": ("<=", 0.0),
}
MEANINGS: Mapping[str, str] = {
    "crashes": "configurations that the loader or the compiler broke down on",
    "refused_by_envoy": "configurations that the loader accepted and Envoy did not",
    "accepted": "configurations that the loader accepted",
}
FIRST_CASE: Final = 1_000_000
"""Other cases than those of the tests."""
FULL: Final = 5_000
QUICK: Final = 500

Say = Callable[[str], None]
Row = dict[str, Any]


def run(*, quick: bool, say: Say) -> tuple[Mapping[str, float], Sequence[Row]]:
    """Try them all; figures and a row for every failure."""
    count = QUICK if quick else FULL
    say(f"{count} spoilt configurations")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hr-f") as folder:
        gate = Gate(envoy(), Path(folder), envoy_schema.read(envoy()))
        report = fuzz(range(FIRST_CASE, FIRST_CASE + count), gate)
    rows: list[Row] = [
        {
            "cases": report.cases,
            "accepted": report.accepted,
            "seconds": round(time.monotonic() - began),
        },
        *({"failure": text} for text in (*report.crashes, *report.refused)),
    ]
    figures = {
        "crashes": float(len(report.crashes)),
        "refused_by_envoy": float(len(report.refused)),
        "accepted": float(report.accepted),
    }
    return figures, rows


def why(figure: str, _: Mapping[str, float], rows: Sequence[Row]) -> str:
    """The first failure."""
    failures = [row["failure"] for row in rows if "failure" in row]
    return str(failures[0]) if figure and failures else ""
