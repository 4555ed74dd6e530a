"""``headrace analyze``: every problem of a configuration, from files or from the running mesh."""

import argparse
import fnmatch
import json

from headrace.config.analyze import analyze
from headrace.config.load import load
from headrace.config.problems import Problem
from headrace_xds.cli import problems, sources
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.output import add_format, documents

EXAMPLES = """\
  headrace analyze -f mesh-config/examples/local
  headrace analyze -f - < mesh.yaml
  headrace analyze                            the configuration of the running mesh
  headrace analyze -f . --fail-on warning --suppress HR0302
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    sources.add_files(parser, required=False)
    parser.add_argument(
        "--fail-on",
        choices=problems.SEVERITIES,
        default="error",
        help="exit 1 when there is a problem as bad as this; default: error",
    )
    parser.add_argument(
        "--suppress",
        action="append",
        default=[],
        metavar="CODE[=OBJECT]",
        help="leave out problems of this code, of objects such as Route/chat-*; may be repeated",
    )
    add_format(parser, "table", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the problems; exit 1 when one is as bad as ``--fail-on``."""
    found = [p for p in _find(flags) if not _suppressed(p, flags.suppress)]
    if flags.output == "json":
        plain = [problems.to_json(problem) for problem in found]
        console.data(json.dumps(plain, indent=2, ensure_ascii=False))
    elif flags.output == "yaml":
        console.data(documents([problems.to_json(problem) for problem in found]))
    else:
        for problem in found:
            console.data(problems.line(console, problem))
    console.say(problems.summary(found))
    worst = problems.worst(found)
    if worst is None:
        return Exit.OK
    order = problems.SEVERITIES
    return Exit.NEGATIVE if order.index(worst) <= order.index(flags.fail_on) else Exit.OK


def _find(flags: argparse.Namespace) -> list[Problem]:
    if not flags.filename:
        found = Admin(flags.server).items("/v1/problems")
        return [problems.from_json(problem) for problem in found]
    return list(analyze(load(sources.read(flags.filename))))


def _suppressed(problem: Problem, rules: list[str]) -> bool:
    for rule in rules:
        code, _, pattern = rule.partition("=")
        owner = problem.object.replace(" ", "/")
        if problem.code == code and fnmatch.fnmatchcase(owner, pattern or "*"):
            return True
    return False
