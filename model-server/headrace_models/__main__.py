"""``headrace-triton``: the model server of one GPU node."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from os import environ
from pathlib import Path

from headrace_models import binaries
from headrace_models.app import Options, serve
from headrace_models.artifacts import ARTIFACTS, ArtifactCache
from headrace_models.failure import Failure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit status."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        if parsed.prepare:
            asyncio.run(_prepare(parsed.cache_dir))
        else:
            asyncio.run(serve(_options(parsed)))
    except Failure as failure:
        print(f"headrace-triton: {failure}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headrace-triton", description=__doc__)
    parser.add_argument("--state-dir", type=Path, default=Path(".headrace/triton"))
    parser.add_argument("--agent-socket", type=Path, help="default: agent.sock in the state folder")
    parser.add_argument(
        "--triton-socket", type=Path, help="default: triton.sock in the state folder"
    )
    parser.add_argument(
        "--cache-dir", type=Path, default=_default_cache(), help="converted weights"
    )
    parser.add_argument("--ports-file", type=Path, help="written once everything listens")
    parser.add_argument(
        "--tritonserver",
        type=Path,
        help=f"another tritonserver binary; also by {binaries.ENVIRONMENT}",
    )
    parser.add_argument("--metrics-port", type=int, default=0, help="of Triton; 0: a free one")
    parser.add_argument("--prepare", action="store_true", help="convert all weights, then exit")
    return parser


def _options(parsed: argparse.Namespace) -> Options:
    return Options(
        state_dir=parsed.state_dir,
        agent_socket=parsed.agent_socket or parsed.state_dir / "agent.sock",
        triton_socket=parsed.triton_socket,
        cache_dir=parsed.cache_dir,
        ports_file=parsed.ports_file,
        tritonserver=binaries.given(dict(environ), parsed.tritonserver),
        metrics_port=parsed.metrics_port,
    )


def _default_cache() -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


async def _prepare(cache_dir: Path) -> None:
    cache = ArtifactCache(cache_dir)
    for name in ARTIFACTS:
        await cache.ready(name)


if __name__ == "__main__":
    sys.exit(main())
