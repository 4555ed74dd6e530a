"""A GPU node that holds everything and does nothing: ``python -m tests.bench.node ...``.

Its load reports are served by the sidecar's own code, so that what they cost is what they cost.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace import limits
from headrace_sidecar.exposition.orca import LoadReports
from tests.fakes.gpu_node import ORCA_SERVICE, FakeGpuNode

_ROOT = Path(__file__).parents[2]


class IdleNode(FakeGpuNode):
    """A fake node with the real load reports, encoded once a period as the sidecar does."""

    _reports: LoadReports
    _encoded = b""
    _encoded_at_s = -1.0

    async def _serve_grpc(self, port: int, service: str) -> int:
        if service != ORCA_SERVICE:
            return await super()._serve_grpc(port, service)
        self._reports = LoadReports(self._newest)
        server = self._reports.server
        taken = server.add_insecure_port(f"{self.address}:{port}")
        await server.start()
        self._servers.append(server)
        return taken

    def _newest(self) -> bytes:
        now_s = time.monotonic()
        if now_s - self._encoded_at_s > limits.SIGNAL_PERIOD_S:
            self._encoded, self._encoded_at_s = self._load_report().SerializeToString(), now_s
        return self._encoded


@contextmanager
def idle_node(
    *, pool: str, address: str, orca_port: int, xds_port: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a node in a process of its own."""
    arguments = [pool, address, str(orca_port), f"127.0.0.1:{xds_port}"]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.node", *arguments], cwd=_ROOT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def _run(flags: argparse.Namespace) -> None:
    node = IdleNode(
        flags.pool,
        pool=flags.pool,
        region="eu",
        zone="eu-1",
        xds=flags.xds,
        address=flags.address,
        orca_port=flags.orca_port,
    )
    async with node:
        await asyncio.Event().wait()


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pool")
    parser.add_argument("address")
    parser.add_argument("orca_port", type=int)
    parser.add_argument("xds")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
