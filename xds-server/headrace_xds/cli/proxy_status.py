"""``headrace proxy status``: what each gateway and sidecar was sent, and what it has taken."""

import argparse
import time
from collections.abc import Mapping
from typing import Any

from headrace.units import parse_duration_s
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.output import add_format, render
from headrace_xds.cli.tables import Column, age

EXAMPLES = """\
  headrace proxy status
  headrace proxy status gateway/gw-eu -o json
  headrace proxy status -o wide               one column for each type
  headrace proxy status --wait 30s            until everything is in effect
"""
TYPES = ("CDS", "LDS", "EDS", "RDS", "ECDS", "ASSIGNMENTS")
_POLL_S = 0.2
_READ_S = 1.0
"""Within which the control server has read an edit of its folder."""
_CLUSTERS_SHOWN = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument(
        "name", nargs="?", help="only this proxy, such as gateway/gw-eu or gpu/eu-1"
    )
    parser.add_argument(
        "--wait",
        metavar="DURATION",
        type=_duration,
        default=0.0,
        help="wait so long for every proxy to have everything in effect",
    )
    add_format(parser)


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the proxies; exit 1 when one of them is behind, or the newest edit was refused."""
    admin = Admin(flags.server)
    deadline = time.monotonic() + flags.wait
    # An edit of a moment ago is not read yet, and what was there before is in effect for sure.
    time.sleep(min(_READ_S, flags.wait))
    while True:
        accepted = bool(admin.get("/v1/generation")["accepted"])
        rows = _read(admin, flags.name)
        done = accepted and bool(rows) and all(row["inEffect"] for row in rows)
        if done or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    console.data(render(rows, COLUMNS, flags.output, single=bool(flags.name)))
    if not rows:
        console.say("no proxy is connected")
    if not accepted:
        console.say(
            "the configuration as it is now was refused, and the one before it stays in effect; "
            "headrace analyze -f says what is wrong with it"
        )
    return Exit.OK if done else Exit.NEGATIVE


def _read(admin: Admin, name: str | None) -> list[dict[str, Any]]:
    rows = admin.items("/v1/proxies")
    if name is None:
        return rows
    rows = [row for row in rows if row["id"] == name]
    if not rows:
        raise CommandError(f"there is no proxy {name!r}", remedy="see headrace proxy status")
    return rows


def _duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _state(row: Mapping[str, Any]) -> str:
    if not row["connected"]:
        return "absent"
    if any(found["rejected"] for found in row["types"]):
        return "rejected"
    return "in effect" if row["inEffect"] else "behind"


def _last_ack(row: Mapping[str, Any]) -> str:
    ages = [t["lastAckAgeSeconds"] for t in row["types"] if t["lastAckAgeSeconds"] is not None]
    return age(min(ages, default=None))


def _types(row: Mapping[str, Any]) -> str:
    found = [t["type"] for t in row["types"]]
    known = [short for short in TYPES if short in found]
    return f"{len(found)} ({','.join(known)})" if found else ""


def _problem(row: Mapping[str, Any]) -> str:
    refused = [
        f"{t['type']} NACK: {rejected['name']}: {rejected['message']}"
        for t in row["types"]
        for rejected in t["rejected"]
    ]
    waiting = [
        f"RDS held back: {held['name']} names {len(held['missingClusters'])} clusters that are not "
        f"there: {', '.join(held['missingClusters'][:_CLUSTERS_SHOWN])}"
        for held in row["heldBack"]
    ]
    return "; ".join(refused + waiting)


def _type_column(short: str) -> Column:
    def cell(row: Mapping[str, Any]) -> object:
        return next((t["state"] for t in row["types"] if t["type"] == short), None)

    return Column(short, cell, wide=True)


COLUMNS = (
    Column("NAME", lambda row: row["id"]),
    Column("STATE", _state),
    Column("LAST ACK", _last_ack),
    Column("SUBSCRIBED TYPES", _types),
    *(_type_column(short) for short in TYPES),
    Column("BUILD", lambda row: row["build"], wide=True),
    Column("PROBLEM", _problem),
)
