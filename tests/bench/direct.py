"""The real Triton without a mesh around it: its own HTTP and gRPC on loopback ports."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace_models import binaries, command, layout, leftovers
from headrace_xds.local.identity import descendants
from headrace_xds.local.ports import free_ports
from headrace_xds.local.readiness import Probe, answers

_START_S = 60.0
_STOP_S = 20.0


@dataclass(frozen=True)
class Triton:
    """A running tritonserver."""

    pid: int
    http_port: int
    grpc_port: int

    def pids(self) -> list[int]:
        """The server and its stubs."""
        return [self.pid, *descendants(self.pid)]


@contextmanager
def triton(repository: Path, models: Sequence[str], folder: Path) -> Iterator[Triton]:
    """Serve models of a repository that a model server has built, with its own settings."""
    found = binaries.locate()
    paths = layout.layout(folder, folder / "agent.sock")
    layout.prepare(paths, found)
    http_port, grpc_port, metrics_port = free_ports(3, addresses=("127.0.0.1",))
    ours = ("--model-repository", "--grpc-address", "--grpc-port", "--allow-http")
    kept = [
        argument
        for argument in command.arguments(found, paths, metrics_port=metrics_port)
        if not argument.startswith(ours)
    ]
    argv = [
        *kept,
        f"--model-repository={repository}",
        *(f"--load-model={model}" for model in models),
        "--http-address=127.0.0.1",
        f"--http-port={http_port}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc_port}",
    ]
    python = command.Interpreter(
        bin_dir=Path(sys.prefix) / "bin",
        library_dir=Path(sysconfig.get_config_var("LIBDIR")),
        packages_dir=Path(binaries.__file__).parents[1],
    )
    environment = command.environment(os.environ, python)
    with (folder / "triton.log").open("wb") as log:
        process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)
    made = Triton(process.pid, http_port, grpc_port)
    try:
        for model in models:
            _wait_ready(made, model, process, folder / "triton.log")
        yield made
    finally:
        _stop(process)
        leftovers.sweep(paths)


def _wait_ready(made: Triton, model: str, process: subprocess.Popen[bytes], log: Path) -> None:
    path = f"/v2/models/{model}/ready"
    probe = Probe("triton", model, "127.0.0.1", made.http_port, path)
    deadline = time.monotonic() + _START_S
    while not answers(probe):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Triton does not serve:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
