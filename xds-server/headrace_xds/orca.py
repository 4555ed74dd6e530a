"""Load reports straight from the GPU nodes, over the same streams that Envoy reads.

One subscription a node, reconnected for as long as the node is known. Each report becomes a
``NodeLoad`` stamped with the receiver's clock; what a report leaves out is simply not known.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Mapping
from math import isfinite
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport
from xds.service.orca.v3.orca_pb2 import OrcaLoadReportRequest

from headrace import limits, names
from headrace.signals import NodeLoad, VersionLoad

METHOD: Final = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"
RECONNECT_S: Final = 1.0
"""Wait before a lost subscription is opened again; twice that after each time that failed."""
SPREAD_S: Final = 0.005
"""Pause between subscriptions that begin together."""
REPORT_BYTES: Final = 4 * 2**20
"""Largest report that is read."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", REPORT_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", int(limits.REPORT_RETRY_S * 1_000)),
)
_RPS_SCALE: Final = 1000.0
"""Nodes report requests per second a thousandfold: Envoy cuts off what follows the point."""
_VERSION_DIGITS: Final = 6

log = logging.getLogger(__name__)

Address = tuple[str, int]
_Stream = Callable[[Any], AsyncIterable[Any]]


class LoadReports:
    """Subscriptions to the load reports of the nodes given to ``follow``."""

    def __init__(self, on_load: Callable[[NodeLoad], None], *, now: Callable[[], float]) -> None:
        self._on_load = on_load
        self._now = now
        self._wanted: Mapping[str, Address] = {}
        self._changed = asyncio.Event()
        self._running: dict[str, tuple[Address, asyncio.Task[None]]] = {}

    def __repr__(self) -> str:
        """One line for operators."""
        return f"<LoadReports following={len(self._running)}>"

    def follow(self, nodes: Mapping[str, Address]) -> None:
        """Subscribe to exactly these nodes."""
        if nodes != self._wanted:
            self._wanted = dict(nodes)
            self._changed.set()

    async def run(self) -> None:
        """Keep the subscriptions up until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._reconcile(tasks)

    def _reconcile(self, tasks: asyncio.TaskGroup) -> None:
        for node, (address, task) in list(self._running.items()):
            if self._wanted.get(node) != address:
                task.cancel()
                del self._running[node]
        new = [node for node in self._wanted if node not in self._running]
        for position, node in enumerate(new):
            address = self._wanted[node]
            # Thousands at a start must not keep the proxies waiting that come back just then.
            subscribe = self._subscribe(node, address, position * SPREAD_S)
            self._running[node] = (address, tasks.create_task(subscribe, name=f"orca {node}"))

    async def _subscribe(self, node: str, address: Address, after_s: float) -> None:
        await asyncio.sleep(after_s)
        host, port = address
        async with grpc.aio.insecure_channel(f"{host}:{port}", options=_OPTIONS) as channel:
            stream = channel.unary_stream(
                METHOD,
                request_serializer=OrcaLoadReportRequest.SerializeToString,
                response_deserializer=OrcaLoadReport.FromString,
            )
            wait_s = RECONNECT_S
            while True:
                wait_s = next_wait_s(wait_s, answered=await self._read(node, stream))
                await asyncio.sleep(wait_s)

    async def _read(self, node: str, stream: _Stream) -> bool:
        """Hand on reports until the stream ends; whether there were any."""
        answered = False
        try:
            async for report in stream(_request()):
                answered = True
                self._on_load(node_load(node, report, now_s=self._now()))
        except grpc.aio.AioRpcError as error:
            log.debug("load reports of %s: %s %s", node, error.code(), error.details())
        return answered


def next_wait_s(wait_s: float, *, answered: bool) -> float:
    """Wait after a subscription that ended: a thousand dead nodes must not keep the server busy."""
    return RECONNECT_S if answered else min(2 * wait_s, limits.REPORT_RETRY_S)


def _request() -> Any:
    return OrcaLoadReportRequest(
        report_interval=Duration(nanos=int(limits.SIGNAL_PERIOD_S * 1_000_000_000))
    )


def node_load(node: str, report: Any, *, now_s: float) -> NodeLoad:
    """Load in one report. Utilisation is brought back to the version's own scale.

    Nodes multiply a version's utilisation by node rps / version rps, because Envoy divides the
    node's rps by it; where the version's own rps is missing, the node served nothing else.
    """
    metrics = {key: value for key, value in report.named_metrics.items() if isfinite(value)}
    node_rps = report.rps_fractional / _RPS_SCALE if isfinite(report.rps_fractional) else 0.0
    versions = []
    prefix = names.UTILIZATION_PREFIX
    for key, reported in metrics.items():
        parsed = _model_version(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if parsed is None:
            continue
        model, version = parsed
        rps = metrics.get(names.rps_metric(model, version), node_rps)
        scale = rps / node_rps if 0 < rps < node_rps else 1.0
        versions.append(
            VersionLoad(
                model=model,
                version=version,
                ready=metrics.get(names.ready_metric(model, version), 1.0) > 0,
                queue=round(metrics.get(names.queue_metric(model, version), 0.0)),
                running=round(metrics.get(names.running_metric(model, version), 0.0)),
                utilization=min(reported * scale, limits.UTILIZATION_MAX),
                rps=rps,
            )
        )
    ordered = sorted(versions, key=lambda load: (load.model, load.version))
    return NodeLoad(
        node=node,
        observed_at_s=now_s,
        rps=node_rps,
        triton_age_s=max(metrics.get(names.TRITON_AGE_METRIC, 0.0), 0.0),
        versions=tuple(ordered),
    )


def _model_version(text: str) -> tuple[str, int] | None:
    model, _, version = text.rpartition("_")
    known = model and len(version) <= _VERSION_DIGITS and version.isdecimal()
    return (model, int(version)) if known else None
