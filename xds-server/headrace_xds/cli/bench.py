"""``headrace bench``: runs a benchmark of the checkout; a table for people, JSON for programs."""

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.tables import Column, table
from headrace_xds.cli.version import versions

EXAMPLES = """\
  headrace bench gateway                      at most ten minutes
  headrace bench gateway --quick              at most one
  headrace bench gateway --json > gateway.json
  headrace bench xds-push                     a thousand proxies, about five minutes
"""
CHECKOUT = Path(__file__).parents[3]
FOLDER = Path("tests") / "bench"


Figures = Mapping[str, float]
Rows = Sequence[Mapping[str, Any]]


class Benchmark(Protocol):
    """What the module of a benchmark has."""

    GOALS: Mapping[str, tuple[str, float]]
    """Goal of a figure: ``>=`` or ``<=``, and the number."""
    MEANINGS: Mapping[str, str]
    """What a figure is."""

    def run(self, *, quick: bool, say: Callable[[str], None]) -> tuple[Figures, Rows]:
        """Measure; the figures by name, and the rows that they come from."""

    def why(self, figure: str, figures: Figures, rows: Rows) -> str:
        """What was measured that explains why the figure misses its goal."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("name", nargs="?", help="omit it to see which there are")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--quick", action="store_true", help="at most a minute; rougher numbers")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Run the benchmark and print what it found; a missed goal is explained, not enforced."""
    known = names()
    if flags.name is None:
        console.data("\n".join(known))
        return Exit.OK
    if flags.name not in known:
        raise CommandError(
            f"there is no benchmark {flags.name!r}",
            where=str(CHECKOUT / FOLDER),
            remedy=f"benchmarks: {', '.join(known) or 'none; they come with the checkout'}",
            status=Exit.USAGE,
        )
    benchmark = _load(flags.name)
    figures, rows = benchmark.run(quick=flags.quick, say=console.say)
    if flags.json:
        console.data(json.dumps(result(flags.name, benchmark, figures, rows)))
        return Exit.OK
    console.data(report(benchmark, figures, rows))
    return Exit.OK


def names() -> list[str]:
    """Benchmarks of the checkout: modules that begin with a goal, not the parts they share."""
    found = sorted((CHECKOUT / FOLDER).glob("*.py"))
    return [path.stem.replace("_", "-") for path in found if "\nGOALS" in path.read_text()]


def result(name: str, benchmark: Benchmark, figures: Figures, rows: Rows) -> dict[str, Any]:
    """The one object that ``--json`` prints."""
    return {
        "bench": name,
        "figures": dict(figures),
        "goals": judged(benchmark, figures, rows),
        "rows": [dict(row) for row in rows],
        "machine": machine(),
        "versions": versions(),
    }


def report(benchmark: Benchmark, figures: Figures, rows: Rows) -> str:
    """What a person reads: the rows, the figures and what they are, why goals were missed."""
    goals = judged(benchmark, figures, rows)
    shown = [
        {"name": name, "value": value, **goals.get(name, {})} for name, value in figures.items()
    ]
    missed = [f"{name} is missed: {goal['why']}" for name, goal in goals.items() if goal["why"]]
    meanings = [f"{name}: {benchmark.MEANINGS[name]}" for name in figures]
    tables = [table([_column(key) for key in part[0]], part) for part in parts(rows)]
    sections = [*tables, table(_FIGURES, shown), "\n".join(meanings), "\n".join(missed)]
    return "\n\n".join(section for section in sections if section)


def judged(benchmark: Benchmark, figures: Figures, rows: Rows) -> dict[str, dict[str, Any]]:
    """Every goal: the sign, the number, whether it was reached and, when not, why."""
    found: dict[str, dict[str, Any]] = {}
    for name, (sign, goal) in benchmark.GOALS.items():
        reached = figures[name] >= goal if sign == ">=" else figures[name] <= goal
        why = "" if reached else benchmark.why(name, figures, rows)
        found[name] = {"sign": sign, "goal": goal, "reached": reached, "why": why}
    return found


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "load": [round(part, 2) for part in os.getloadavg()],
    }


def parts(rows: Rows) -> list[list[Mapping[str, Any]]]:
    """Rows with the same keys, one table each, in the order of their first row."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row), []).append(row)
    return list(found.values())


def _load(name: str) -> Benchmark:
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return cast(Benchmark, importlib.import_module(f"tests.bench.{name.replace('-', '_')}"))


def _column(key: str) -> Column:
    return Column(key.replace("_", " ").upper(), lambda row: row[key])


def _first(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(key))
    return next(found, "")


_FIGURES = (
    Column("FIGURE", lambda row: row["name"]),
    Column("VALUE", lambda row: str(row["value"])),
    Column("GOAL", lambda row: f"{row['sign']} {row['goal']:g}" if "sign" in row else ""),
    Column("REACHED", lambda row: row.get("reached")),
)
