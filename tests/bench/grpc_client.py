"""A closed loop over gRPC: encoded bytes out, bytes in, a channel for each caller."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import grpc
import grpc.aio

from headrace import limits
from tests.bench.sample import Sample

METHOD: Final = "/inference.GRPCInferenceService/ModelInfer"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.RESPONSE_BYTES),
    ("grpc.max_send_message_length", limits.RESPONSE_BYTES),
    # Otherwise channels to one address would share one connection.
    ("grpc.use_local_subchannel_pool", 1),
)
Metadata = Sequence[tuple[str, str]]


def grpc_loop(
    target: str, request: bytes, *, metadata: Metadata, connections: int, seconds: float
) -> Sample:
    """Send a request again and again on every channel for a time; raises when one fails."""
    return asyncio.run(_loop(target, request, metadata, connections=connections, seconds=seconds))


async def _loop(
    target: str, request: bytes, metadata: Metadata, *, connections: int, seconds: float
) -> Sample:
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        callers = [
            tasks.create_task(_call(target, request, metadata, deadline_s=began_s + seconds))
            for _ in range(connections)
        ]
    took_s = time.perf_counter() - began_s
    return Sample([latency for caller in callers for latency in caller.result()], took_s)


async def _call(
    target: str, request: bytes, metadata: Metadata, *, deadline_s: float
) -> list[float]:
    latencies_s: list[float] = []
    async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
        infer = channel.unary_unary(METHOD, None, None)
        while True:
            sent_s = time.perf_counter()
            await infer(request, metadata=metadata, timeout=60, wait_for_ready=True)
            now_s = time.perf_counter()
            latencies_s.append(now_s - sent_s)
            if now_s >= deadline_s:
                return latencies_s
