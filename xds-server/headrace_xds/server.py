"""xDS over gRPC: carries bytes between proxies and the hub, and ends streams politely."""

import asyncio
import contextlib
import itertools
import logging
from operator import attrgetter
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from headrace import limits
from headrace_xds import wire
from headrace_xds.hub import Connection, Hub
from headrace_xds.messages import Rejection, Variant
from headrace_xds.methods import METHODS, Method

_LOG = logging.getLogger(__name__)
_STOP_GRACE_S = 1.0
_CLOSE_PAUSE_S = 0.005

_OPTIONS = (
    # Envoys and sidecars ping every 10 s. The "recv" spelling of the first is silently ignored.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", limits.ADS_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 20_000),
    ("grpc.so_reuseport", 0),
)

_Context = grpc.aio.ServicerContext[bytes, bytes]


class _Ended(Exception):
    """Ends the tasks of a stream; carries the status its client gets."""

    def __init__(self, rejection: Rejection | None) -> None:
        super().__init__(rejection)
        self.rejection = rejection


class _Stream:
    """One gRPC call."""

    def __init__(self, hub: Hub, method: Method, *, write_deadline_s: float) -> None:
        self._write_deadline_s = write_deadline_s
        self._method = method
        self._news = asyncio.Event()
        self._end = asyncio.Event()
        self._cut = False
        self._hub = hub

    def end(self) -> None:
        """End the stream in good order; its client connects elsewhere, or again."""
        self._end.set()

    async def serve(self, context: _Context) -> None:
        """Run the call to its end."""
        method = self._method
        connection = self._hub.open(self._news.set, variant=method.variant, only=method.only)
        if isinstance(connection, Rejection):
            await _abort(context, connection)
            return
        rejection: Rejection | None = None
        try:
            await context.send_initial_metadata(())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(connection, context))
                tasks.create_task(self._write(connection, context))
                tasks.create_task(self._wait_for_end())
        except* _Ended as ended:
            rejection = _first(ended)
        finally:
            connection.close()
        if rejection is not None:
            _LOG.warning("stream %s ended: %s", connection, rejection.message)
            await _abort(context, rejection)

    def _receive(self, connection: Connection, data: bytes) -> Rejection | None:
        sotw = self._method.variant is Variant.SOTW
        decode = wire.decode_sotw_request if sotw else wire.decode_request
        try:
            request = decode(data, implied=self._method.only)
        except DecodeError as error:
            return Rejection("INVALID_ARGUMENT", f"not a discovery request: {error}")
        return connection.receive(request)

    async def _read(self, connection: Connection, context: _Context) -> None:
        while True:
            data: Any = await context.read()
            if not isinstance(data, bytes):
                raise _Ended(None)
            if self._cut:
                continue
            rejection = self._receive(connection, data)
            if rejection is not None:
                raise _Ended(rejection)

    async def _write(self, connection: Connection, context: _Context) -> None:
        while True:
            for data in connection.take():
                await self._write_one(connection, context, data)
            await self._wait(connection.due_in_s())
            self._news.clear()

    async def _wait(self, due_in_s: float | None) -> None:
        """Wait for news, or until something is due without."""
        if due_in_s is None:
            await self._news.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(due_in_s):
                await self._news.wait()

    async def _write_one(self, connection: Connection, context: _Context, data: bytes) -> None:
        """Write a response. A client that does not take it in time is forgotten at once.

        It is told when it takes bytes again: gRPC cannot end a call in the midst of a write. A
        client that is dead as well answers no ping and loses its connection.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(self._write_deadline_s, self._cut_off, connection)
        try:
            await context.write(data)
        finally:
            deadline.cancel()
        if self._cut:
            raise _Ended(Rejection("UNAVAILABLE", "this client took no bytes for too long"))

    def _cut_off(self, connection: Connection) -> None:
        self._cut = True
        connection.close()

    async def _wait_for_end(self) -> None:
        await self._end.wait()
        raise _Ended(None)


class AdsServer:
    """A listening xDS server. Keep a reference: grpc.aio stops a server that nobody holds."""

    def __init__(self, hub: Hub, *, write_deadline_s: float = limits.WRITE_DEADLINE_S) -> None:
        self.port = 0
        self._hub = hub
        self._write_deadline_s = write_deadline_s
        self._streams: set[_Stream] = set()
        self._stopping = False
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            grpc.method_handlers_generic_handler(
                service, {method.name: self._handler(method) for method in methods}
            )
            for service, methods in itertools.groupby(METHODS, attrgetter("service"))
        )

    async def start(self, address: str) -> None:
        """Listen; port 0 picks a free one, ``port`` says which. Raises when it is taken."""
        self.port = self._server.add_insecure_port(address)
        await self._server.start()

    async def stop(self) -> None:
        """End every stream, one after the other, then stop listening.

        Clients keep what they hold. They are spread out so that whoever serves them next is not
        asked by all of them in one moment.
        """
        self._stopping = True
        streams = tuple(self._streams)
        pause_s = close_pause_s(len(streams))
        for stream in streams:
            stream.end()
            await asyncio.sleep(pause_s)
        await self._server.stop(_STOP_GRACE_S)

    def _handler(self, method: Method) -> Any:
        async def serve(_: object, context: _Context) -> None:
            await self._serve(method, context)

        return grpc.stream_stream_rpc_method_handler(
            serve, request_deserializer=_identity, response_serializer=_identity
        )

    async def _serve(self, method: Method, context: _Context) -> None:
        if self._stopping:
            await _abort(context, Rejection("UNAVAILABLE", "this server stops; try again"))
            return
        stream = _Stream(self._hub, method, write_deadline_s=self._write_deadline_s)
        self._streams.add(stream)
        try:
            await stream.serve(context)
        finally:
            self._streams.discard(stream)


def close_pause_s(streams: int) -> float:
    """Pause after each stream that is ended, so that all are within the spread."""
    return min(_CLOSE_PAUSE_S, limits.CLOSE_SPREAD_S / max(1, streams))


async def serve(hub: Hub, address: str) -> AdsServer:
    """Serve a hub over every method of xDS; the real port is ``AdsServer.port``."""
    server = AdsServer(hub)
    await server.start(address)
    return server


async def _abort(context: _Context, rejection: Rejection) -> None:
    await context.abort(grpc.StatusCode[rejection.status], rejection.message)


def _first(errors: BaseExceptionGroup[_Ended]) -> Rejection | None:
    """First rejection among the reasons why a stream ended."""
    for error in errors.exceptions:
        found = _first(error) if isinstance(error, BaseExceptionGroup) else error.rejection
        if found is not None:
            return found
    return None


def _identity(data: bytes) -> bytes:
    return data
