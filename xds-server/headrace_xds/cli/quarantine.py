"""``headrace quarantine``: versions that proxies refused; ``--release`` sends one again."""

import argparse
from collections.abc import Mapping
from typing import Any

from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.output import add_format, render
from headrace_xds.cli.tables import Column

EXAMPLES = """\
  headrace quarantine
  headrace quarantine -o json                 with the text of each proxy in full
  headrace quarantine --release RDS models/chat
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument(
        "--release",
        nargs=2,
        metavar=("TYPE", "NAME"),
        help="hold nothing of this resource back any more: it is sent to everybody again",
    )
    add_format(parser)


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print what is held, exit 1 when some of it is wanted; or release a resource."""
    admin = Admin(flags.server)
    if flags.release:
        kind, name = flags.release
        released = admin.delete(f"/v1/quarantine/{kind}/{name}")["released"]
        console.say(f"released {kind} {name}: {released} refusals")
        return Exit.OK
    rows = admin.items("/v1/quarantine")
    console.data(render(rows, COLUMNS, flags.output, single=False))
    if not rows:
        console.say("nothing is quarantined")
    return Exit.NEGATIVE if any(row["wantedBy"] for row in rows) else Exit.OK


def _sources(row: Mapping[str, Any]) -> str:
    places = {
        f"{source['object']} ({source['file']}:{source['line']})": None
        for wanted in row["wantedBy"]
        for source in wanted["sources"]
    }
    return ", ".join(places)


def _served(row: Mapping[str, Any]) -> str:
    if not row["wantedBy"]:
        return "not wanted"
    return "last good" if all(wanted["served"] for wanted in row["wantedBy"]) else "nothing"


COLUMNS = (
    Column("TYPE", lambda row: row["type"]),
    Column("NAME", lambda row: row["name"]),
    Column("BUILD", lambda row: row["build"]),
    Column("SERVED", _served),
    Column("FROM", _sources),
    Column("VERSION", lambda row: row["version"], wide=True),
    Column("AT", lambda row: row["at"], wide=True),
    Column("PROXY", lambda row: row["proxy"]),
    Column("MESSAGE", lambda row: row["message"]),
)
