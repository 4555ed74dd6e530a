"""``headrace wait``: until a configuration is in effect on every proxy, or cannot be."""

import argparse
import time
from typing import Any

from headrace.units import parse_duration_s
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import CommandError, Console, Exit

EXAMPLES = """\
  headrace wait --in-effect                   the newest configuration, at most a minute
  headrace wait --in-effect --generation 12 --timeout 30s
"""
_POLL_S = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument(
        "--in-effect", action="store_true", required=True, help="every proxy acknowledged it"
    )
    parser.add_argument(
        "--generation", type=int, default=0, metavar="N", help="this one, which apply printed"
    )
    parser.add_argument("--timeout", type=_duration, default=60.0, metavar="DURATION")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Wait; exit 1 when it is not in effect in time, was refused, or is quarantined."""
    admin = Admin(flags.server)
    deadline = time.monotonic() + flags.timeout
    while True:
        found = admin.get("/v1/generation")
        reached = found["generation"] >= flags.generation
        if reached and found["accepted"] and found["inEffect"]:
            console.data(f"generation {found['generation']} is in effect")
            return Exit.OK
        if reached and (why := _never(admin, found)):
            raise CommandError(why)
        if time.monotonic() >= deadline:
            raise CommandError(_where(found), remedy="headrace proxy status says which are behind")
        time.sleep(_POLL_S)


def _never(admin: Admin, found: dict[str, Any]) -> str:
    """Why it will not come into effect by itself; empty when it may."""
    if not found["accepted"]:
        return "the configuration as it is now was refused; headrace analyze says why"
    for row in admin.items("/v1/quarantine"):
        if row["wantedBy"]:
            return f"{row['proxy']} refused {row['type']} {row['name']}: {row['message']}"
    return ""


def _where(found: dict[str, Any]) -> str:
    proxies = found["proxies"]
    at = f"generation {found['generation']} is in effect on {proxies['inEffect']}"
    return f"{at} of {proxies['connected']} proxies"


def _duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
