"""Wires one model server, top-down: state directory, Triton, repository, agent."""

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from headrace_models import agent, binaries, layout, ports
from headrace_models.artifacts import ArtifactCache
from headrace_models.command import Interpreter
from headrace_models.failure import Failure
from headrace_models.placement import Placement
from headrace_models.repository import Repository, models_dir
from headrace_models.supervisor import Supervisor

_TRITON_LOG = logging.getLogger("tritonserver")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line decides."""

    state_dir: Path
    agent_socket: Path
    triton_socket: Path | None
    cache_dir: Path
    ports_file: Path | None
    tritonserver: Path | None
    metrics_port: int


async def serve(options: Options) -> None:
    """Run until SIGTERM or SIGINT; then end Triton and leave nothing behind."""
    found, paths = _prepare(options)
    with _locked(paths.lock_file):
        repository = Repository(paths, models_dir())
        repository.sweep()
        announced = (options.ports_file, paths.agent_socket)
        _remove(*announced)
        supervisor = Supervisor(
            binaries=found,
            layout=paths,
            interpreter=_interpreter(),
            base_environment=os.environ,
            metrics_port=options.metrics_port,
            log=_pass_on,
        )
        placement = Placement(repository, ArtifactCache(options.cache_dir))
        try:
            await _serve(options, paths, supervisor, placement)
        finally:
            _remove(*announced)


def _prepare(options: Options) -> tuple[binaries.Binaries, layout.Layout]:
    binaries.check_numpy()
    found = binaries.locate(options.tritonserver)
    paths = layout.layout(options.state_dir, options.agent_socket, options.triton_socket)
    layout.prepare(paths, found)
    return found, paths


async def _serve(
    options: Options, paths: layout.Layout, supervisor: Supervisor, placement: Placement
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        supervising = group.create_task(supervisor.run())
        stack.callback(supervising.cancel)
        runner = web.AppRunner(
            agent.app(placement, supervisor), handle_signals=False, access_log=None
        )
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.UnixSite(runner, str(paths.agent_socket)).start()
        paths.agent_socket.chmod(0o600)
        announcing = group.create_task(_announce(options.ports_file, paths, supervisor))
        stack.callback(announcing.cancel)
        await stop.wait()


async def _announce(file: Path | None, paths: layout.Layout, supervisor: Supervisor) -> None:
    """Write the ports file once Triton answers."""
    if file is None:
        return
    await supervisor.answering()
    status = supervisor.status()
    taken = {
        "agent_socket": str(paths.agent_socket),
        "triton_socket": status.grpc_socket,
        "metrics_address": status.metrics_address,
    }
    ports.announce(file, taken)


def _pass_on(line: str) -> None:
    """Log a line of tritonserver, but not the tables it draws."""
    if line and line[0] not in "+|":
        _TRITON_LOG.info("%s", line)


def _remove(*files: Path | None) -> None:
    """Take away what says that a model server is up."""
    for file in files:
        if file is not None:
            file.unlink(missing_ok=True)


def _interpreter() -> Interpreter:
    return Interpreter(
        bin_dir=Path(sys.prefix) / "bin",
        library_dir=Path(sysconfig.get_config_var("LIBDIR")),
        packages_dir=Path(__file__).parent.parent,
    )


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the state directory; a second model server on it would fight over its files."""
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Failure(
                "state_dir_in_use",
                "another model server is running here",
                where=str(file.parent),
                remedy="stop it, or choose another --state-dir",
            ) from error
        yield
