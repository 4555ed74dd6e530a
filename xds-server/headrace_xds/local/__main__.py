"""Runs the programs of a local mesh: ``python -m headrace_xds.local STATE_DIR``."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from headrace_xds.local import plan
from headrace_xds.local.supervisor import Supervisor


def main() -> int:
    """Supervise the plan of a state directory until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="headrace-local", description=__doc__)
    parser.add_argument("state_dir", type=Path)
    parser.add_argument(
        "--tied", action="store_true", help="stop everything when standard input closes"
    )
    parser.add_argument(
        "--background", action="store_true", help="leave at once; a process of its own goes on"
    )
    flags = parser.parse_args()
    made = plan.read(flags.state_dir)
    if made is None:
        print(f"{flags.state_dir}: no plan to run; start with headrace up", file=sys.stderr)
        return 2
    # Nobody waits for a process in the background, so it must be nobody's child.
    if flags.background and os.fork() != 0:
        return 0
    asyncio.run(_run(made, tied=flags.tied))
    return 0


async def _run(made: plan.Plan, *, tied: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if tied:
        # Nothing is ever written to it, so it becomes readable only when the other end is gone.
        loop.add_reader(sys.stdin.fileno(), stop.set)
    await Supervisor(made).run(stop)


if __name__ == "__main__":
    sys.exit(main())
