"""``headrace diff``: what files mean against others, or against the running mesh."""

import argparse

from headrace_xds.cli import comparison, sources
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.output import add_format, render

EXAMPLES = """\
  headrace diff -f route.yaml                 against the running mesh
  headrace diff --from old/ -f new/           two folders, without a mesh
  headrace diff --from old/ -f new/ -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    sources.add_files(parser, required=True)
    parser.add_argument(
        "--from",
        dest="before",
        metavar="PATH",
        help="compare with these files and not with the running mesh; what -f lacks is removed",
    )
    add_format(parser, "table", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print what differs; exit 1 when something does."""
    given = sources.read(flags.filename)
    if flags.before:
        before, after = dict(sources.read([flags.before])), dict(given)
    else:
        before = comparison.running(Admin(flags.server))
        after = comparison.applied(before, given)
    found = comparison.compare(console, before, after)
    if flags.output == "table":
        console.data("\n".join(found.lines()))
    else:
        console.data(render([found.to_json()], (), flags.output, single=True))
    return Exit.OK if found.is_empty else Exit.NEGATIVE
