"""Keeps one tritonserver running: start, watch, restart with back-off, clean up after it.

A restarted tritonserver holds no model (explicit mode). Its incarnation is higher by one, which
tells the sidecar to load again. The incarnation is on disk, so it also rises across supervisors.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace import limits
from headrace_models import leftovers, ports, probe, restarts
from headrace_models.binaries import Binaries
from headrace_models.command import Interpreter, arguments, environment
from headrace_models.layout import Layout
from headrace_models.process import TritonProcess

_LOG = logging.getLogger("headrace.triton")
_KILLED_POLL_S = 0.02
_LAST_LINES_S = 1.0


@dataclass(frozen=True, slots=True)
class TritonStatus:
    """What is known about tritonserver now."""

    pid: int
    alive: bool
    """It has answered and has not ended since."""
    incarnation: int
    grpc_socket: str
    metrics_address: str
    version: str


class Supervisor:
    """Owns the tritonserver of one state directory."""

    def __init__(
        self,
        *,
        binaries: Binaries,
        layout: Layout,
        interpreter: Interpreter,
        base_environment: Mapping[str, str],
        metrics_port: int,
        log: Callable[[str], None],
    ) -> None:
        self._binaries = binaries
        self._layout = layout
        self._environment = environment(base_environment, interpreter)
        self._metrics_port = metrics_port
        self._log = log
        self._restart = asyncio.Event()
        self._answered = asyncio.Event()
        self._process: TritonProcess | None = None
        self._metrics_address = ""
        self._version = ""
        self._incarnation = leftovers.read_record(layout.record_file).incarnation

    def __repr__(self) -> str:
        return f"Supervisor({self.status()})"

    def status(self) -> TritonStatus:
        """Who tritonserver is and whether it answers."""
        process = self._process
        return TritonStatus(
            pid=process.pid if process is not None else 0,
            alive=process is not None and process.alive and self._answered.is_set(),
            incarnation=self._incarnation,
            grpc_socket=str(self._layout.triton_socket),
            metrics_address=self._metrics_address,
            version=self._version,
        )

    def request_restart(self) -> None:
        """End tritonserver now and start it anew."""
        self._restart.set()

    async def answering(self) -> None:
        """Return once tritonserver answers."""
        await self._answered.wait()

    async def run(self) -> None:
        """Keep tritonserver running until cancelled; then end it and clean up."""
        await self._end_predecessor()
        short_lives = 0
        while True:
            ended = await self._live()
            decision = restarts.after(ended, short_lives=short_lives)
            short_lives = decision.short_lives
            _LOG.warning("tritonserver starts again in %.1f s", decision.delay_s)
            await asyncio.sleep(decision.delay_s)

    async def _live(self) -> restarts.Ended:
        """One life of tritonserver, from start to end."""
        self._restart.clear()
        started_s = time.monotonic()
        process = await self._spawn()
        answered = False
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(process.pump(self._log))
            try:
                answered = await self._started(process)
                if answered:
                    await self._ends_or_restarts(process)
            finally:
                sick = self._restart.is_set() or not answered
                within_s = limits.TRITON_REPAIR_S if sick else limits.TRITON_KILL_S
                await self._end(process, pump, within_s=within_s)
        return restarts.Ended(
            lived_s=time.monotonic() - started_s,
            answered=answered,
            requested=self._restart.is_set(),
        )

    async def _end(
        self, process: TritonProcess, pump: asyncio.Task[None], *, within_s: float
    ) -> None:
        """Stop it, hear its last words, remove what it left."""
        self._answered.clear()
        await process.stop(within_s=within_s)
        # The last lines say why it ended. Whoever held the pipe was just killed.
        await asyncio.wait((pump,), timeout=_LAST_LINES_S)
        pump.cancel()
        removed = leftovers.sweep(self._layout)
        _LOG.info("pid %d ended, %d leftover files removed", process.pid, removed)

    async def _spawn(self) -> TritonProcess:
        leftovers.sweep(self._layout)
        port = self._metrics_port or ports.free_port()
        process = await TritonProcess.spawn(
            arguments(self._binaries, self._layout, metrics_port=port), self._environment
        )
        self._process = process
        self._incarnation += 1
        self._metrics_address = f"127.0.0.1:{port}"
        leftovers.write_record(
            self._layout.record_file,
            leftovers.Record(incarnation=self._incarnation),
        )
        _LOG.info("tritonserver incarnation %d is pid %d", self._incarnation, process.pid)
        return process

    async def _started(self, process: TritonProcess) -> bool:
        """Whether it answers before it ends and before its time to start is over."""
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(probe.wait_until_answering(self._layout.grpc_socket))
            ended = group.create_task(process.wait())
            await asyncio.wait(
                (asked, ended),
                timeout=limits.TRITON_START_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            answered = asked.done() and not ended.done()
            asked.cancel()
            ended.cancel()
        if not answered:
            _LOG.error("tritonserver did not answer within %.0f s", limits.TRITON_START_S)
            return False
        self._version = asked.result()
        self._layout.grpc_socket.chmod(0o600)
        self._answered.set()
        took_s = time.monotonic() - begun_s
        _LOG.info("tritonserver %s answers after %.2f s", self._version, took_s)
        return True

    async def _ends_or_restarts(self, process: TritonProcess) -> None:
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(process.wait())
            asked = group.create_task(self._restart.wait())
            await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                _LOG.error("tritonserver ended by itself with code %d", ended.result())
            ended.cancel()
            asked.cancel()

    async def _end_predecessor(self) -> None:
        """Kill the tritonserver of a supervisor that could not do so itself."""
        prefix = self._layout.shm_prefix
        async with asyncio.timeout(limits.TRITON_KILL_S):
            while left := leftovers.find(prefix):
                _LOG.warning("killing %s, left behind by a killed supervisor", left)
                leftovers.kill(left)
                await asyncio.sleep(_KILLED_POLL_S)
