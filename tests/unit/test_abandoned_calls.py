"""Requests inside a lost version are given up one after the other, and soon."""

import asyncio

import grpc
import grpc.aio
import pytest

from headrace import limits
from headrace.refusals import Refused
from headrace_sidecar.gpu.serving import Served
from headrace_sidecar.gpu.triton import ABANDON_PAUSE_S, Triton
from tests.fakes.sidecar_assignments import identity


async def _hang(message: bytes, context: object) -> bytes:
    await asyncio.Event().wait()
    return b""


async def test_lost_requests_are_given_up_one_by_one_within_the_limit() -> None:
    server = grpc.aio.server()
    hanging = grpc.unary_unary_rpc_method_handler(_hang)
    service = "inference.GRPCInferenceService"
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"ModelInfer": hanging}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    triton, served = Triton(f"127.0.0.1:{port}"), Served(identity("m"))
    now = asyncio.get_running_loop().time
    ended: list[float] = []

    async def call() -> None:
        with pytest.raises(Refused) as refused:
            await triton.infer(b"", served, timeout_s=30.0)
        assert refused.value.elsewhere
        ended.append(now())

    async with asyncio.TaskGroup() as callers:
        for _ in range(10):
            callers.create_task(call())
        await asyncio.sleep(0.2)
        started_s = now()
        await triton.abandon("other.1")
        await triton.abandon("m.1")
        assert now() - started_s >= 10 * min(ABANDON_PAUSE_S, limits.ABANDON_S / 10)
    assert ended == sorted(ended)
    assert ended[-1] - ended[0] > 5 * ABANDON_PAUSE_S
    await triton.close()
    await server.stop(None)
