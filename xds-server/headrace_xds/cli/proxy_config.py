"""``headrace proxy config``: what an Envoy has live, resource by resource."""

import argparse

from headrace_xds.cli import live
from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.output import add_format, render
from headrace_xds.cli.tables import Column

EXAMPLES = """\
  headrace proxy config gateway/gw-eu
  headrace proxy config gateway/gw-eu --type RDS --resource models/chat -o yaml
  headrace proxy config gateway/gw-eu --envoy http://10.0.0.7:19000
"""
TYPES = ("CDS", "EDS", "LDS", "RDS", "SRDS", "ECDS")
COLUMNS = (
    Column("TYPE", lambda row: row["type"]),
    Column("NAME", lambda row: row["name"]),
    Column("VERSION", lambda row: row["version"]),
    Column("STATE", lambda row: row["state"]),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    live.add_envoy(parser)
    parser.add_argument("--type", choices=TYPES, help="only resources of this type")
    parser.add_argument("--resource", metavar="NAME", help="only the resource of this name")
    add_format(parser, "table", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the resources; in full as json and yaml. Exit 1 when there is none."""
    rows = [
        found._asdict()
        for found in live.read(flags)
        if flags.type in (None, found.type) and flags.resource in (None, found.name)
    ]
    console.data(render(rows, COLUMNS, flags.output))
    return Exit.OK if rows else Exit.NEGATIVE
