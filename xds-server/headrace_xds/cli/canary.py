"""``headrace canary release``: gateways go on without the canary proxy."""

import argparse

from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import Console, Exit

EXAMPLES = """\
  headrace canary release                     the canary is away for good; serve the others
"""


def configure(_: argparse.ArgumentParser) -> None:
    """No flags."""


def run(flags: argparse.Namespace, console: Console) -> int:
    """Release them; exit 1 when nobody waits."""
    Admin(flags.server).post("/v1/canary/release", "")
    console.say("the gateways that waited are served the configuration")
    return Exit.OK
