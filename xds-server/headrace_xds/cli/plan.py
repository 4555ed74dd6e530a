"""``headrace plan``: what ``apply`` would do to the running mesh; nothing is changed."""

import argparse

from headrace_xds.cli import comparison, problems, sources
from headrace_xds.cli.client import Admin, Refusal
from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.output import add_format, render

EXAMPLES = """\
  headrace plan -f route.yaml                 what changes, and is a stream cut?
  headrace plan -f mesh.yaml --allow-drain    cut streams are fine
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    sources.add_files(parser, required=True)
    parser.add_argument(
        "--allow-drain", action="store_true", help="exit 0 even if streams under way would be cut"
    )
    add_format(parser, "table", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the plan; exit 1 when the server, its Envoy included, says no, or a stream is cut."""
    admin = Admin(flags.server)
    given = sources.read(flags.filename)
    before = comparison.running(admin)
    found = comparison.compare(console, before, comparison.applied(before, given))
    try:
        admin.post("/v1/apply", "\n---\n".join(text for _, text in given), dryRun="1")
    except Refusal as refusal:
        for refused in refusal.problems:
            console.say(problems.line(console, problems.from_json(refused)))
        raise
    if flags.output == "table":
        console.data("\n".join(found.lines()))
    else:
        console.data(render([found.to_json()], (), flags.output, single=True))
    if found.impact.drained and not flags.allow_drain:
        console.say("long streams would be cut; --allow-drain says that this is meant")
        return Exit.NEGATIVE
    return Exit.OK
