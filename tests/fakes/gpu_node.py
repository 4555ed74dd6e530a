"""A GPU node without a GPU: the real ADS client, a front door, health checks and load reports.

It acknowledges what it is assigned at once, or refuses what ``refusals`` names. Its load is what
the test sets. Its control stream can be cut and opened again while its front door goes on.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

import grpc
import grpc.aio
from aiohttp import web
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport

from headrace import headers, limits, names
from headrace_sidecar.adsclient.client import AdsClient
from headrace_sidecar.adsclient.messages import Assigned, NodeInfo, Removed

ORCA_SERVICE = "xds.service.orca.v3.OpenRcaService"
HEALTH_SERVICE = "grpc.health.v1.Health"
SERVING = b"\x08\x01"
NOT_SERVING = b"\x08\x02"


@dataclass
class Load:
    """Load of one model version, in its own units; the report scales it as real nodes do."""

    utilization: float = 0.1
    rps: float = 1.0
    queue: int = 0
    running: int = 0
    ready: bool = True


class FakeGpuNode:
    """One node; an async context manager. Port 0 takes a free port."""

    def __init__(
        self,
        name: str,
        *,
        pool: str,
        region: str,
        zone: str,
        xds: str,
        address: str = "127.0.0.1",
        http_port: int = 0,
        grpc_port: int = 0,
        orca_port: int = 0,
    ) -> None:
        self.name = name
        self.address = address
        self.http_port = http_port
        self.grpc_port = grpc_port
        self.orca_port = orca_port
        self.refusals: dict[str, str] = {}
        self.loads: dict[str, Load] = {}
        self.held: dict[str, str] = {}
        self.served = 0
        self.strays: list[str] = []
        """Versions that were asked for and not held."""
        self.connects = 0
        self.acknowledged_at_s = 0.0
        """When an assignment was first taken, on the monotonic clock; a test sets it back to 0."""
        self.offered: list[tuple[str, int]] = []
        self._pool, self._region, self._zone, self._xds = pool, region, zone, xds
        self._client: AdsClient | None = None
        self._control: asyncio.Task[None] | None = None
        self._leaving = False
        self._group = asyncio.TaskGroup()
        self._servers: list[grpc.aio.Server] = []
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._runner = web.AppRunner(self._front_door(), access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.address, self.http_port).start()
        self.http_port = self._runner.addresses[0][1]
        self.grpc_port = await self._serve_grpc(self.grpc_port, HEALTH_SERVICE)
        self.orca_port = await self._serve_grpc(self.orca_port, ORCA_SERVICE)
        self.connect()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self.disconnect()
        self._stopping.set()
        for server in self._servers:
            await server.stop(None)
        if self._runner is not None:
            await self._runner.cleanup()
        await self._group.__aexit__(*failure)

    # --- what tests do --------------------------------------------------------------------------

    def connect(self) -> None:
        """Open the control stream and keep it open; what is held is claimed."""
        self._leaving = False
        self._client = AdsClient(
            server=self._xds,
            node=self._node_info(),
            handler=self,
            now=asyncio.get_running_loop().time,
            rng=random.Random(0),
            ready=self.held,
        )
        self._control = self._group.create_task(self._client.run())

    async def disconnect(self) -> None:
        """Cut the control stream; the front door and the load reports go on."""
        if self._control is not None:
            self._control.cancel()
            await asyncio.wait({self._control})
            self._control = None

    @property
    def connected_to_control(self) -> bool:
        """Whether the control stream is kept open, and not for saying goodbye."""
        return self._control is not None and not self._leaving

    def leave(self) -> None:
        """Say that this node is going away."""
        self._leaving = True
        assert self._client is not None
        self._client.leave()

    def set_load(self, model: str, version: int, load: Load) -> None:
        """Report this load from now on."""
        self.loads[names.assignment(model, version)] = load

    # --- what the control server asks -----------------------------------------------------------

    def assigned(self, assigned: Assigned) -> None:
        assert self._client is not None
        assert assigned.kind == names.ASSIGNMENT_KIND
        self.offered.append((assigned.name, int(assigned.value["attempt"])))
        refusal = self.refusals.get(assigned.name)
        if refusal is not None:
            # What was held before goes on serving, as on real nodes.
            self._client.nack(assigned.nonce, refusal)
            return
        self.held[assigned.name] = assigned.version
        self.acknowledged_at_s = self.acknowledged_at_s or time.monotonic()
        self._client.ack(assigned.nonce)

    def removed(self, removed: Removed) -> None:
        assert self._client is not None
        self.held.pop(removed.name, None)
        self._client.ack(removed.nonce)

    def connected(self) -> None:
        self.connects += 1

    def disconnected(self, reason: str) -> None:
        """The client connects again by itself."""

    # --- inside ---------------------------------------------------------------------------------

    def _node_info(self) -> NodeInfo:
        return NodeInfo(
            id=names.gpu_node_id(self.name),
            cluster="gpu",
            region=self._region,
            zone=self._zone,
            metadata={
                "role": "gpu",
                "node": self.name,
                "pool": self._pool,
                "address": self.address,
                "http_port": self.http_port,
                "grpc_port": self.grpc_port,
                "orca_port": self.orca_port,
                "inventory": {},
            },
        )

    def _answers(self, name: str) -> bool:
        return name in self.held and self.loads.get(name, Load()).ready

    def _front_door(self) -> web.Application:
        app = web.Application()
        version = "/v2/models/{model}/versions/{version}"
        app.add_routes(
            [
                web.get("/v2/health/ready", self._healthy),
                web.get("/v2/health/live", self._healthy),
                web.get(f"{version}/ready", self._ready),
                web.post("/v2/models/{tail:.*}", self._infer),
            ]
        )
        return app

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _ready(self, request: web.Request) -> web.Response:
        name = names.assignment(request.match_info["model"], int(request.match_info["version"]))
        return web.Response(status=200 if self._answers(name) else 503)

    async def _infer(self, request: web.Request) -> web.Response:
        self.served += 1
        model, _, _ = request.match_info["tail"].partition("/")
        name = f"{model}@{request.headers.get(headers.VERSION, '?')}"
        if name not in self.held:
            self.strays.append(name)
            return web.Response(status=404)
        return web.json_response({"node": self.name, "headers": dict(request.headers)})

    async def _serve_grpc(self, port: int, service: str) -> int:
        server = grpc.aio.server()
        methods = {
            ORCA_SERVICE: {"StreamCoreMetrics": grpc.unary_stream_rpc_method_handler(self._report)},
            HEALTH_SERVICE: {"Check": grpc.unary_unary_rpc_method_handler(self._check)},
        }[service]
        handler = grpc.method_handlers_generic_handler(service, methods)
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port(f"{self.address}:{port}")
        await server.start()
        self._servers.append(server)
        return port

    async def _check(self, request: bytes, _: object) -> bytes:
        # HealthCheckRequest has one field, the service name: tag, length, text.
        name = request[2:].decode()
        return SERVING if not name or self._answers(name) else NOT_SERVING

    async def _report(self, _: bytes, context: object) -> AsyncIterator[bytes]:
        while not self._stopping.is_set():
            yield self._load_report().SerializeToString()
            try:
                async with asyncio.timeout(limits.SIGNAL_PERIOD_S / 2):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    def _load_report(self) -> Any:
        loads = {name: self.loads.get(name, Load()) for name in self.held}
        node_rps = sum(load.rps for load in loads.values()) or 1.0
        report = OrcaLoadReport(rps_fractional=node_rps * 1000)
        for name, load in loads.items():
            model, version = names.parse_assignment(name)
            scaled = load.utilization * node_rps / max(load.rps, 0.001)
            metrics = report.named_metrics
            metrics[names.utilization_metric(model, version)] = scaled
            metrics[names.ready_metric(model, version)] = float(load.ready)
            metrics[names.queue_metric(model, version)] = load.queue
            metrics[names.running_metric(model, version)] = load.running
            metrics[names.rps_metric(model, version)] = load.rps
        return report
