"""A GPU node as a gateway sees it: records what arrives and answers as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio
from aiohttp import web

from headrace import headers
from headrace_xds.translate.endpoints import Health

HOST = "127.0.0.1"
SERVING = b"\x08\x01"


@dataclass(frozen=True)
class Seen:
    """One request that reached a node."""

    path: str
    headers: dict[str, str]
    body_bytes: int

    @property
    def version(self) -> str:
        return self.headers.get(headers.VERSION, "")


@dataclass(frozen=True)
class Answer:
    """What a node says to inference, once ``after`` is set; ``reset`` breaks the connection."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    grpc_status: grpc.StatusCode = grpc.StatusCode.OK
    reset: bool = False
    after: asyncio.Event | None = None


OK = Answer()
REFUSE = Answer(
    503,
    {headers.REFUSED: "overloaded", headers.RETRY: headers.RETRY_SAFE, "retry-after": "1"},
    grpc.StatusCode.UNAVAILABLE,
)
REFUSE_UNSAFE = Answer(503, {headers.REFUSED: "overloaded"}, grpc.StatusCode.UNAVAILABLE)
SICK = Answer(500, {}, grpc.StatusCode.INTERNAL)
RESET = Answer(reset=True)

Behave = Callable[[Seen], Answer]


class MeshNode:
    """Both front doors of a node. ``seen`` leaves out health checks.

    ``priority``, ``weight`` and ``health`` are what the control server would publish about it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.priority = 0
        self.weight = 1
        self.health: Health = "healthy"
        self.http_port = 0
        self.grpc_port = 0
        self.seen: list[Seen] = []
        self.behave: Behave = lambda _: OK

    def of(self, version: int | str) -> list[Seen]:
        """Requests that arrived for a version."""
        return [seen for seen in self.seen if seen.version == str(version)]

    async def http(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/ready"):
            return web.json_response({"ready": True})
        body = await request.read()
        seen = Seen(request.path, {k.lower(): v for k, v in request.headers.items()}, len(body))
        self.seen.append(seen)
        answer = self.behave(seen)
        if answer.after is not None:
            await answer.after.wait()
        if answer.reset:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        told = {"node": self.name, "version": seen.version, "path": request.path}
        extra = {**answer.headers, "x-node": self.name, "endpoint-load-metrics": "TEXT cpu=1"}
        return web.json_response(told, status=answer.status, headers=extra)

    async def unary(self, body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        metadata = {k: str(v) for k, v in context.invocation_metadata() or ()}
        seen = Seen("grpc", metadata, len(body))
        self.seen.append(seen)
        answer = self.behave(seen)
        if answer.after is not None:
            await answer.after.wait()
        if answer.grpc_status is not grpc.StatusCode.OK:
            if headers.REFUSED in answer.headers:
                await context.send_initial_metadata(tuple(answer.headers.items()))
            await context.abort(answer.grpc_status, "as told")
        told = (("x-node", self.name), ("x-version", seen.version))
        await context.send_initial_metadata(told)
        return b""

    async def stream(
        self, bodies: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        metadata = {k: str(v) for k, v in context.invocation_metadata() or ()}
        self.seen.append(Seen("stream", metadata, 0))
        async for body in bodies:
            yield body


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, node: MeshNode) -> None:
        self._node = node

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        method = handler_call_details.method
        if method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(_serving)
        if method.endswith("/ModelStreamInfer"):
            return grpc.stream_stream_rpc_method_handler(self._node.stream)
        return grpc.unary_unary_rpc_method_handler(self._node.unary)


async def _serving(_: bytes, __: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return SERVING


@asynccontextmanager
async def mesh_node(name: str) -> AsyncIterator[MeshNode]:
    """Run a node on free ports."""
    node = MeshNode(name)
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", node.http)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    node.http_port = runner.addresses[0][1]
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
    server.add_generic_rpc_handlers((_Handlers(node),))
    node.grpc_port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    try:
        yield node
    finally:
        await asyncio.gather(server.stop(None), runner.cleanup())
