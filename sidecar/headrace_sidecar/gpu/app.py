"""Wires one GPU sidecar, top-down, and takes it down again without losing a request.

Everything starts at once and says honestly what is missing: no Triton, no control server and no
GPU are states, not errors. Ports listen before the node registers, so that nobody is sent to a
closed door.
"""

import asyncio
import contextlib
import logging
import random
import signal
import time
from importlib.metadata import version

import grpc.aio
import msgspec
from aiohttp import web

from headrace import names
from headrace_sidecar.adsclient.client import AdsClient
from headrace_sidecar.adsclient.messages import NodeInfo
from headrace_sidecar.exposition import loadreport
from headrace_sidecar.exposition.orca import LoadReports
from headrace_sidecar.exposition.page import metrics_app
from headrace_sidecar.exposition.prometheus import Exposition
from headrace_sidecar.gpu import ports
from headrace_sidecar.gpu.agent import Agent
from headrace_sidecar.gpu.assignments import Assignments
from headrace_sidecar.gpu.chronicle import Chronicle, expose
from headrace_sidecar.gpu.converters import Converters
from headrace_sidecar.gpu.drain import Drain
from headrace_sidecar.gpu.inventory import Gpus, inventory, machine_bytes
from headrace_sidecar.gpu.oip_grpc import grpc_handlers, grpc_server
from headrace_sidecar.gpu.oip_http import http_app, http_runner
from headrace_sidecar.gpu.records import Records
from headrace_sidecar.gpu.repair import Repair
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.settings import Settings
from headrace_sidecar.gpu.signals import Sampler
from headrace_sidecar.gpu.steps import Steps
from headrace_sidecar.gpu.triton import Triton
from headrace_sidecar.gpu.tritonwatch import TritonWatch

CLOSE_S = 2.0
"""Time that what nobody counts, such as health watches, has to end after the drain."""

log = logging.getLogger(__name__)
now = time.monotonic


class Sidecar:
    """The parts of one GPU sidecar and how they know each other."""

    def __init__(self, settings: Settings, agent: Agent, triton: Triton) -> None:
        self.settings = settings
        self.serving = Serving(node=settings.node)
        self.gpus = Gpus(now=now)
        self.watch = TritonWatch(agent, triton)
        self.steps = Steps(agent, triton, self.watch, now=now)
        self.exposition = Exposition()
        self.chronicle = Chronicle(self.exposition)
        self.assignments = Assignments(
            serving=self.serving,
            steps=self.steps,
            records=Records(settings.state_dir),
            chronicle=self.chronicle,
            now=now,
        )
        self.sampler = Sampler(
            lambda: self.serving,
            answers=self.serving.answers,
            change=lambda: self.serving.change,
            gpu_busy=lambda: self.gpus.busy,
            metrics_address=lambda: self.watch.metrics_address,
            now=now,
        )
        encoder = loadreport.Encoder()
        self.load_reports = LoadReports(lambda: encoder.encode(self.sampler.current()))
        self.repair = Repair(
            self.assignments.keepers,
            prober=self.steps,
            service_s=self.sampler.service_s,
            executed=self.sampler.executed,
            abandon=triton.abandon,
            repaired=self.chronicle.repaired,
            now=now,
        )
        self.drain = Drain(
            self.serving,
            leave=self._leave,
            grace_s=settings.drain_grace_s,
            deadline_s=settings.drain_deadline_s,
            now=now,
        )
        self.client: AdsClient | None = None
        self.triton = triton
        triton.on_stub_death = self.repair.stub_died
        self.watch.on_change.append(self.assignments.look)
        self.serving.on_end = self.chronicle.ended
        self.serving.on_refused = self.chronicle.refused
        expose(
            self.exposition,
            sampler=self.sampler,
            assignments=self.assignments,
            triton=self.watch,
            steps=self.steps,
            gpus=self.gpus,
            load_reports=self.load_reports,
            drain=self.drain,
            now=now,
        )

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Sidecar({self.settings.node} {self.drain!r} {self.watch!r} {self.assignments!r})"

    async def run(self) -> None:
        """Serve until told to leave, then leave."""
        async with contextlib.AsyncExitStack() as doors:
            taken = await self._open(doors)
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(part, name=name)
                    for name, part in (
                        ("gpus", self.gpus.run()),
                        ("triton", self.watch.run()),
                        ("signals", self.sampler.run()),
                        ("versions", self.assignments.run()),
                        ("repair", self.repair.run()),
                        ("control", self._register(taken)),
                    )
                ]
                if self.settings.ports_file is not None:
                    ports.announce(self.settings.ports_file, taken)
                log.info("node %s listens on %s", self.settings.node, taken)
                await self.drain.run()
                for task in running:
                    task.cancel()
            log.info("node %s is closed", self.settings.node)

    def _leave(self) -> None:
        if self.client is not None:
            self.client.leave()

    async def _open(self, doors: contextlib.AsyncExitStack) -> dict[str, int]:
        """Open every port; the ports that were taken."""
        settings = self.settings
        converters = Converters()
        doors.callback(converters.close)
        app = http_app(self.serving, self.triton, converters)
        front = http_runner(app, shutdown_timeout_s=CLOSE_S)
        page = web.AppRunner(
            metrics_app(self.exposition.registry, triton_page=lambda: self.sampler.page),
            access_log=None,
            shutdown_timeout=CLOSE_S,
        )
        taken = {
            "http": await _listen(doors, front, settings.address, settings.http_port),
            "metrics": await _listen(doors, page, settings.address, settings.metrics_port),
        }
        server: grpc.aio.Server = grpc_server(grpc_handlers(self.serving, self.triton, converters))
        taken["grpc"] = _bind(server, f"{settings.address}:{settings.grpc_port}")
        await server.start()
        doors.push_async_callback(server.stop, CLOSE_S)
        taken["orca"] = _bind(self.load_reports.server, f"{settings.address}:{settings.orca_port}")
        await self.load_reports.server.start()
        doors.push_async_callback(self.load_reports.server.stop, None)
        return taken

    async def _register(self, taken: dict[str, int]) -> None:
        """Take up what was ready before, then keep the control stream open."""
        await self.gpus.look()
        await self.watch.looked.wait()
        ready = await self.assignments.adopt()
        self.client = AdsClient(
            server=self.settings.xds,
            node=self._node(taken),
            handler=self.assignments,
            now=now,
            rng=random.Random(),  # noqa: S311 (spreads reconnects; guards nothing)
            ready=ready,
        )
        self.assignments.control = self.client
        if self.serving.leaving:
            self.client.leave()
        await self.client.run()

    def _node(self, taken: dict[str, int]) -> NodeInfo:
        settings = self.settings
        found = inventory(self.gpus.newest, machine_bytes=machine_bytes())
        return NodeInfo(
            id=names.gpu_node_id(settings.node),
            cluster=settings.pool,
            region=settings.region,
            zone=settings.zone,
            metadata={
                "role": "gpu",
                "node": settings.node,
                "pool": settings.pool,
                "address": settings.address,
                "http_port": taken["http"],
                "grpc_port": taken["grpc"],
                "orca_port": taken["orca"],
                "inventory": msgspec.to_builtins(found),
            },
            build=version("headrace"),
        )


async def serve(settings: Settings) -> None:
    """Run one sidecar until SIGTERM or SIGINT has taken it out."""
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    if settings.ports_file is not None:
        settings.ports_file.unlink(missing_ok=True)
    async with Agent(str(settings.agent_socket)) as agent:
        triton = Triton(f"unix:{settings.triton_socket}")
        try:
            sidecar = Sidecar(settings, agent, triton)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, sidecar.drain.ask)
            await sidecar.run()
        finally:
            await triton.close()


def _bind(server: grpc.aio.Server, address: str) -> int:
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"{address} is not free for gRPC") from error


async def _listen(
    doors: contextlib.AsyncExitStack, runner: web.BaseRunner, address: str, port: int
) -> int:
    await runner.setup()
    doors.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, address, port).start()
    taken: int = runner.addresses[0][1]
    return taken
