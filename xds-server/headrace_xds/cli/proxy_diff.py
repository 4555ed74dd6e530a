"""``headrace proxy diff``: what a proxy is served against what it has live."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from headrace_xds.cli import live
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.output import add_format, render
from headrace_xds.cli.proxy_config import TYPES
from headrace_xds.cli.tables import Column

EXAMPLES = """\
  headrace proxy diff gateway/gw-eu
  headrace proxy diff gateway/gw-eu --envoy http://10.0.0.7:19000
"""
COLUMNS = (
    Column("TYPE", lambda row: row["type"]),
    Column("NAME", lambda row: row["name"]),
    Column("SENT", lambda row: row["sent"]),
    Column("LIVE", lambda row: row["live"]),
)
_PRESENT = "present"
"""In place of a version of types whose versions Envoy does not tell: names are compared."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    live.add_envoy(parser)
    add_format(parser, "table", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print what differs; exit 1 when something does."""
    sent = Admin(flags.server).items(f"/v1/proxies/{flags.name}/resources")
    rows = list(differences(sent, live.read(flags)))
    console.data(render(rows, COLUMNS, flags.output))
    if not rows:
        console.say("the proxy has what it is served")
    return Exit.NEGATIVE if rows else Exit.OK


def differences(sent: Iterable[dict[str, Any]], lives: Iterable[live.Live]) -> Iterator[Any]:
    """Resources that are served and not live, live and not served, or of another version."""
    served = {(row["type"], row["name"]): row["version"] for row in sent if row["type"] in TYPES}
    has = {
        (found.type, found.name): found.version or _PRESENT
        for found in lives
        if found.state == "active"
    }
    for key in sorted(served.keys() | has.keys()):
        one, other = served.get(key), has.get(key)
        if one == other or (one is not None and other == _PRESENT):
            continue
        yield {"type": key[0], "name": key[1], "sent": one, "live": other}
