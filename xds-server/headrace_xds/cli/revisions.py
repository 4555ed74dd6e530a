"""``headrace revisions``: every configuration that came into effect, and what each changed."""

import argparse
from typing import Any

from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.meaning import lines
from headrace_xds.cli.output import add_format, render
from headrace_xds.cli.tables import Column

EXAMPLES = """\
  headrace revisions
  headrace revisions 7                        what revision 7 changed, and its text
  headrace revisions 7 -o json
"""
COLUMNS = (
    Column("REVISION", lambda row: row["revision"]),
    Column("AT", lambda row: row["at"]),
    Column("AUTHOR", lambda row: row["author"]),
    Column("FROM", lambda row: row["origin"]),
    Column("NOTE", lambda row: row["note"]),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("number", nargs="?", type=int, metavar="REVISION")
    add_format(parser, "table", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the list, or one revision against the one before."""
    admin = Admin(flags.server)
    if flags.number is None:
        rows = admin.items("/v1/revisions")
        console.data(render(rows, COLUMNS, flags.output))
        return Exit.OK
    row: dict[str, Any] = admin.get(f"/v1/revisions/{flags.number}")
    if flags.output == "table":
        head = render([row], COLUMNS, "table")
        console.data("\n".join([head, "", *lines(row["changes"]), "", row["diff"].rstrip()]))
    else:
        console.data(render([row], COLUMNS, flags.output, single=True))
    return Exit.OK
