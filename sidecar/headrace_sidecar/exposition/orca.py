"""``LoadReports``: out-of-band load reports over gRPC, as Envoy's client-side balancers ask for.

Every subscriber gets the newest report at its own interval. A report is encoded once for all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio
from xds.service.orca.v3 import orca_pb2

from headrace import limits

SERVICE: Final = "xds.service.orca.v3.OpenRcaService"
METHOD: Final = "StreamCoreMetrics"


class LoadReports:
    """A gRPC server of load reports, to be bound, started and stopped by its owner.

    Keep it: grpc.aio stops a server that nobody refers to.
    """

    def __init__(self, report: Callable[[], bytes]) -> None:
        self.streams = 0
        self._report = report
        self.server = grpc.aio.server(
            options=(
                # One stream for each cluster and gateway comes over each gateway's connection.
                ("grpc.max_concurrent_streams", limits.LOAD_REPORT_STREAMS),
                ("grpc.so_reuseport", 0),
            )
        )
        self.server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    SERVICE,
                    {
                        METHOD: grpc.unary_stream_rpc_method_handler(
                            self._stream,
                            request_deserializer=orca_pb2.OrcaLoadReportRequest.FromString,
                        )
                    },
                ),
            )
        )

    def __repr__(self) -> str:
        """One line for operators."""
        return f"LoadReports(streams={self.streams})"

    async def _stream(
        self, request: Any, context: "grpc.aio.ServicerContext[Any, bytes]"
    ) -> AsyncIterator[bytes]:
        if self.streams >= limits.LOAD_REPORT_STREAMS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"this node serves {limits.LOAD_REPORT_STREAMS} streams of load reports already",
            )
        interval_s = interval(request.report_interval.ToTimedelta().total_seconds())
        self.streams += 1
        try:
            while True:
                yield self._report()
                await asyncio.sleep(interval_s)
        finally:
            self.streams -= 1


def interval(asked_s: float) -> float:
    """Interval of a stream whose subscriber asked for ``asked_s``; 0 means that it did not say."""
    return max(asked_s, limits.LOAD_REPORT_PERIOD_MIN_S) if asked_s > 0 else limits.SIGNAL_PERIOD_S
