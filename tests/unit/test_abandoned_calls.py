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


async def test_lost_requests_are_given_up_one_by_one_within_the_limit() -> None:
    calls, entered, all_inside = 10, 0, asyncio.Event()

    async def hang(message: bytes, context: object) -> bytes:
        nonlocal entered
        entered += 1
        if entered == calls:
            all_inside.set()
        await asyncio.Event().wait()
        return b""

    server = grpc.aio.server()
    hanging = grpc.unary_unary_rpc_method_handler(hang)
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
        for _ in range(calls):
            callers.create_task(call())
        async with asyncio.timeout(10):
            await all_inside.wait()
        started_s = now()
        await triton.abandon("other.1")
        await triton.abandon("m.1")
        assert now() - started_s >= calls * min(ABANDON_PAUSE_S, limits.ABANDON_S / calls)
    assert ended == sorted(ended)
    assert ended[-1] - ended[0] > 5 * ABANDON_PAUSE_S
    await triton.close()
    await server.stop(None)
