"""Limits of a gateway that only many connections or odd messages reach."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from headrace import limits
from tests.fakes.ads_recorder import until
from tests.fakes.mesh_gateway import ALWAYS, INFER, VISION, long_field, running
from tests.fakes.mesh_ir import route, served

pytestmark = pytest.mark.e2e

REQUEST = b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n"


async def is_answered(stack: AsyncExitStack, port: int) -> bool:
    """Whether a new connection is served; it stays open either way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    try:
        writer.write(REQUEST)
        async with asyncio.timeout(10):
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


async def test_downstream_connections_are_limited_until_some_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOWNSTREAM_CONNECTIONS", 8)
    parts = (served("vision", 1), route("vision", "vision", *ALWAYS))
    async with running(tmp_path, *parts, nodes=1) as (gateway, _):
        async with AsyncExitStack() as many:
            answered = [await is_answered(many, gateway.port) for _ in range(12)]
            assert answered[0]
            assert 1 <= sum(answered) <= 8
            assert not answered[-1]

        async def served_again() -> bool:
            async with AsyncExitStack() as one:
                return await is_answered(one, gateway.port)

        await until(served_again)


async def test_grpc_fields_bound_the_walk_to_the_name_of_a_model(tmp_path: Path) -> None:
    parts = (served("vision", 1), route("vision", "vision", *ALWAYS))
    filler = long_field(7, 0)
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        await gateway.call("ModelInfer", filler * (limits.GRPC_FIELDS - 1) + VISION)
        seen = len(node.seen)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await gateway.call("ModelInfer", filler * limits.GRPC_FIELDS + VISION)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert len(node.seen) == seen
        assert (await gateway.send(INFER)).status == 200
