"""``headrace apply``: puts YAML into the mesh, or says what would happen."""

import argparse
from collections.abc import Sequence
from typing import Any

from headrace.config.load import load
from headrace.config.problems import Problem
from headrace_xds.cli import author, problems, sources
from headrace_xds.cli.client import Admin, Refusal
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.output import add_format, render

EXAMPLES = """\
  headrace apply -f route.yaml
  headrace apply -f mesh/ --dry-run=server    every check of the server, nothing changed
  cat route.yaml | headrace apply -f -
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    sources.add_files(parser, required=True)
    parser.add_argument(
        "--dry-run",
        choices=("none", "client", "server"),
        nargs="?",
        const="client",
        default="none",
        help="client: check here only; server: check there too; nothing is changed",
    )
    author.add_note(parser)
    add_format(parser, "table", "json", "yaml", "name")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Apply; one line for each object says what became of it."""
    files = sources.read(flags.filename)
    loaded = load(files)
    _demand(console, loaded.problems)
    if flags.dry_run == "client":
        # References may point at what only the server has: they are not looked at here.
        results = [_result(placed.object) for placed in loaded.objects]
        return _show(flags, console, results, suffix=" (client dry run)")
    query = {**author.query(flags), **({"dryRun": "1"} if flags.dry_run == "server" else {})}
    text = "\n---\n".join(text for _, text in files)
    try:
        answer = Admin(flags.server).post("/v1/apply", text, **query)
    except Refusal as refusal:
        for refused in refusal.problems:
            console.say(problems.line(console, problems.from_json(refused)))
        raise
    for left in answer["problems"]:
        console.say(problems.line(console, problems.from_json(left)))
    suffix = " (server dry run)" if flags.dry_run == "server" else ""
    return _show(flags, console, answer["results"], suffix=suffix)


def _demand(console: Console, found: Sequence[Problem]) -> None:
    for problem in found:
        console.say(problems.line(console, problem))
    if problems.worst(found) == "error":
        raise CommandError(
            f"{problems.summary(found)}; nothing was changed", remedy="correct them and apply again"
        )


def _result(item: Any) -> dict[str, Any]:
    return {"kind": type(item).__name__, "name": item.metadata.name, "result": "valid"}


def _show(
    flags: argparse.Namespace, console: Console, results: list[dict[str, Any]], *, suffix: str
) -> int:
    named = [{**result, "name": f"{result['kind'].lower()}/{result['name']}"} for result in results]
    if flags.output == "table":
        console.data("\n".join(f"{r['name']} {r['result']}{suffix}" for r in named))
    else:
        console.data(render(named if flags.output == "name" else results, (), flags.output))
    return Exit.OK
