"""Both front doors of a GPU sidecar on free ports, in front of whatever Triton is given."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import grpc.aio
from aiohttp import web

from headrace.assignment import Assignment, Batching, Tensor
from headrace_sidecar.gpu.converters import Converters
from headrace_sidecar.gpu.oip_grpc import grpc_handlers, grpc_server
from headrace_sidecar.gpu.oip_http import http_app, http_runner
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.triton import Triton

GRPC_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
)


def assigned(
    model: str,
    inputs: dict[str, tuple[str, tuple[int, ...]]],
    outputs: dict[str, tuple[str, tuple[int, ...]]] | None = None,
    *,
    version: int = 1,
    max_batch_size: int = 0,
    max_queue_size: int = 64,
    idempotent: bool = False,
) -> Assignment:
    """Assignment of a model; without outputs it returns its inputs."""
    return Assignment(
        model=model,
        version=version,
        executor="identity",
        artifact="",
        inputs=_tensors(inputs),
        outputs=_tensors(inputs if outputs is None else outputs),
        batching=Batching(
            max_batch_size=max_batch_size,
            max_queue_delay_s=0.0,
            max_queue_size=max_queue_size,
            queue_timeout_s=2.0,
        ),
        idempotent=idempotent,
    )


def _tensors(declared: dict[str, tuple[str, tuple[int, ...]]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name=name, datatype=datatype, shape=shape)
        for name, (datatype, shape) in declared.items()
    )


def pbtxt(assignment: Assignment, extra: str = "") -> str:
    """config.pbtxt of an assignment, less name and backend."""
    return (
        f"max_batch_size: {assignment.batching.max_batch_size}\n"
        f"{_side('input', assignment.inputs)}{_side('output', assignment.outputs)}{extra}"
    )


def _side(side: str, tensors: Iterable[Tensor]) -> str:
    return "".join(
        f'{side} [{{name: "{tensor.name}" dims: {list(tensor.shape)} '
        f"data_type: TYPE_{'STRING' if tensor.datatype == 'BYTES' else tensor.datatype}}}]\n"
        for tensor in tensors
    )


class Reply(NamedTuple):
    """An HTTP response, read."""

    status: int
    headers: dict[str, str]
    body: bytes


class FrontDoor(NamedTuple):
    """Running front doors and what stands behind them."""

    serving: Serving
    triton: Triton
    session: aiohttp.ClientSession
    url: str
    channel: Any
    grpc_target: str

    async def send(self, method: str, path: str, **options: Any) -> Reply:
        """The answer to an HTTP request; header names in lower case."""
        return await send(self.session, method, self.url + path, **options)


async def send(session: aiohttp.ClientSession, method: str, url: str, **options: Any) -> Reply:
    """The answer to an HTTP request; header names in lower case."""
    async with session.request(method, url, **options) as response:
        fields = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status, fields, await response.read())


@asynccontextmanager
async def front_door(target: str, assignments: Iterable[Assignment]) -> AsyncIterator[FrontDoor]:
    """Front doors on free ports, every version ready; all closed at the end."""
    serving = Serving(node="node-1")
    for assignment in assignments:
        serving.put(assignment)
        serving.set_ready(assignment.model, assignment.version)
    triton = Triton(target)
    converters = Converters()
    runner = http_runner(http_app(serving, triton, converters), shutdown_timeout_s=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server = grpc_server(grpc_handlers(serving, triton, converters))
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    grpc_target = f"127.0.0.1:{grpc_port}"
    channel = grpc.aio.insecure_channel(grpc_target, options=GRPC_OPTIONS)
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            yield FrontDoor(serving, triton, session, f"http://{host}:{port}", channel, grpc_target)
    finally:
        await channel.close(None)
        await server.stop(None)
        await runner.cleanup()
        converters.close()
        await triton.close()
