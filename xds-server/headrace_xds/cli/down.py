"""``headrace down``: stops the local mesh; requests that run are let finish."""

import argparse
from pathlib import Path

from headrace_xds.cli.console import Console, Exit
from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.plan import DEFAULT_STATE_DIR
from headrace_xds.local.record import read

EXAMPLES = """\
  headrace down
  headrace down --state-dir elsewhere
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("--state-dir", type=Path, default=DEFAULT_STATE_DIR, metavar="DIR")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Stop everything; a mesh that does not run is fine too."""
    mesh = LocalMesh.attach(flags.state_dir)
    running = read(flags.state_dir).running() if mesh is not None else {}
    if mesh is None or not running:
        if mesh is not None:
            mesh.stop()
        console.say(f"nothing runs from {flags.state_dir}")
        return Exit.OK
    console.say(f"stopping {len(running)} programs: gateways first, then sidecars, which drain")
    mesh.stop()
    console.say(f"stopped; configuration and logs stay in {flags.state_dir}")
    return Exit.OK
