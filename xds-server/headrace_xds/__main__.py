"""``headrace-xds``: the control server as a program."""

import argparse
import asyncio
import importlib
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace import limits, names
from headrace_xds.app import Options, run
from headrace_xds.binaries import BinaryMissingError, envoy
from headrace_xds.configuration import LAST_GOOD_FILE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace-xds", description="The control server of a Headrace mesh."
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="DIR", help="folder of YAML files"
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the ledger and the last good configuration are kept",
    )
    parser.add_argument(
        "--secrets",
        type=Path,
        metavar="DIR",
        help="folder with a folder for each secret: tls.crt and tls.key, or ca.crt",
    )
    parser.add_argument("--xds-address", default="127.0.0.1:18000", metavar="HOST:PORT")
    parser.add_argument("--admin-address", default="127.0.0.1:10080", metavar="HOST:PORT")
    parser.add_argument(
        "--ports-file",
        type=Path,
        metavar="FILE",
        help="written once both ports listen, as JSON; port 0 takes a free one",
    )
    parser.add_argument(
        "--return-grace",
        type=float,
        default=limits.RETURN_GRACE_S,
        metavar="SECONDS",
        help="after a start, how long endpoints wait for GPU nodes to return (default: 30)",
    )
    parser.add_argument(
        "--envoy",
        type=Path,
        metavar="FILE",
        help="Envoy that checks what is published (default: the one that is installed)",
    )
    parser.add_argument(
        "--no-gate", action="store_true", help="publish without asking an Envoy about it first"
    )
    parser.add_argument(
        "--canary",
        default="",
        metavar="NODE",
        help="node id of a gateway, such as gateway/eu, that takes a configuration before others",
    )
    return parser


def parse(arguments: Sequence[str]) -> Options:
    """Options on a command line; exits with usage when they are wrong."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if not parsed.config.is_dir() and not (parsed.state_dir / LAST_GOOD_FILE).exists():
        # With a last good configuration a restart serves on, whatever became of the folder.
        parser.error(f"--config {parsed.config}: no such folder")
    gate = None
    if not parsed.no_gate:
        try:
            gate = parsed.envoy or envoy()
        except BinaryMissingError as error:
            parser.error(f"{error}; or go without its check: --no-gate")
    if parsed.canary and not names.is_gateway(parsed.canary):
        parser.error(f"--canary {parsed.canary}: not a gateway; node ids are gateway/<name>")
    if parsed.secrets is not None and not parsed.secrets.is_dir():
        parser.error(f"--secrets {parsed.secrets}: no such folder")
    return Options(
        config=parsed.config,
        state_dir=parsed.state_dir,
        secrets=parsed.secrets,
        xds_address=parsed.xds_address,
        admin_address=parsed.admin_address,
        ports_file=parsed.ports_file,
        return_grace_s=parsed.return_grace,
        envoy=gate,
        canary=parsed.canary,
    )


async def serve(options: Options) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(options, stop)


def main() -> int:
    """Entry point."""
    options = parse(sys.argv[1:])
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    status = 0
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(options))
    except* (OSError, RuntimeError) as errors:
        logging.error("headrace-xds cannot go on: %s", errors.exceptions[0])
        status = 1
    return status


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed: it is faster, and nothing depends on it."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    sys.exit(main())
