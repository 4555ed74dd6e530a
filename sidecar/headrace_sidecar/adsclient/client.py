"""``AdsClient``: keeps one delta-ADS stream to the control server open, whatever happens to it.

Use: build it with a ``Handler`` (``messages.py``), run ``client.run()`` in a TaskGroup, answer
every ``Assigned`` and ``Removed`` with ``ack`` or ``nack`` whenever it is decided, call ``leave``
when the node drains, cancel ``run`` when it is gone. A handler may answer from within its call.
A server that restarts or cannot be reached costs nothing but time: what is ready is claimed again
on the next stream, what is in work goes on, and no version is handed over twice.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from headrace import limits, names
from headrace_sidecar.adsclient import wire
from headrace_sidecar.adsclient.backoff import Backoff
from headrace_sidecar.adsclient.engine import AdsClientEngine
from headrace_sidecar.adsclient.messages import Assigned, Handler, NodeInfo

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", limits.ADS_MESSAGE_BYTES),
    # Each stream connects anew after our own back-off; gRPC's would only add to it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
)

_Call = grpc.aio.StreamStreamCall[bytes, bytes]
_Open = grpc.aio.StreamStreamMultiCallable[bytes, bytes]


def _identity(data: bytes) -> bytes:
    return data


class AdsClient:
    """One subscription of one node to every resource of one type."""

    def __init__(
        self,
        *,
        server: str,
        node: NodeInfo,
        handler: Handler,
        now: Callable[[], float],
        rng: Random,
        ready: Mapping[str, str] | None = None,
        type_url: str = names.ASSIGNMENT_TYPE_URL,
    ) -> None:
        self._server = server
        self._handler = handler
        self._now = now
        self._rng = rng
        self._engine = AdsClientEngine(type_url=type_url, node=node, ready=ready)
        self._wake = asyncio.Event()
        self._reconnect = asyncio.Event()

    def __repr__(self) -> str:
        """One line for operators."""
        return f"AdsClient({self._server} {self._engine!r})"

    @property
    def ready(self) -> Mapping[str, str]:
        """Acknowledged resources and their versions: what a new stream claims."""
        return self._engine.ready

    def ack(self, nonce: str) -> None:
        """Say that what ``nonce`` asked for is done; unknown and replaced nonces are dropped."""
        self._engine.ack(nonce)
        self._wake.set()

    def nack(self, nonce: str, message: str) -> None:
        """Say that what ``nonce`` asked for was given up, and why."""
        self._engine.nack(nonce, message)
        self._wake.set()

    def leave(self) -> None:
        """Tell the server that this node drains; final, and repeated on every later stream."""
        self._engine.leave()
        self._wake.set()

    def forget(self, name: str) -> None:
        """Stop claiming (or refusing) a resource; takes effect on the next stream."""
        self._engine.forget(name)

    def update_node(self, node: NodeInfo) -> None:
        """Change what is said about this node: it travels once a stream, so this reconnects."""
        self._engine.node = node
        self._reconnect.set()
        self._wake.set()

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        backoff = Backoff()
        async with grpc.aio.insecure_channel(self._server, options=_CHANNEL_OPTIONS) as channel:
            open_stream = channel.stream_stream(
                METHOD, request_serializer=_identity, response_deserializer=_identity
            )
            while True:
                started_s = self._now()
                reason = await self._stream(open_stream)
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # A stream that breaks as it is cancelled hides the cancellation (Python 3.11).
                    raise asyncio.CancelledError
                self._engine.disconnect()
                self._handler.disconnected(reason)
                if self._reconnect.is_set():
                    continue
                await asyncio.sleep(
                    backoff.next_delay_s(lived_s=self._now() - started_s, rng=self._rng)
                )

    async def _stream(self, open_stream: _Open) -> str:
        """Run one stream to its end; returns why it ended."""
        self._reconnect.clear()
        self._engine.connect()
        self._wake.set()
        call = open_stream(None)
        reason = "a change of this node's data"
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(call))
                writer = tasks.create_task(self._write(call))
                done, _ = await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
                if reader in done and not reader.cancelled() and not reader.exception():
                    reason = reader.result()
                reader.cancel()
                writer.cancel()
        except* (grpc.RpcError, asyncio.InvalidStateError) as errors:
            reason = _reason(errors)
        finally:
            call.cancel()
        return reason

    async def _read(self, call: _Call) -> str:
        """Hand over responses until the server ends the stream; returns why it ended."""
        await call.initial_metadata()
        if not call.done():
            self._handler.connected()
        try:
            async for data in call:
                self._hand_over(data)
        except DecodeError as error:
            return f"unreadable response: {error}"
        return "the server ended the stream"

    def _hand_over(self, data: bytes) -> None:
        for event in self._engine.receive(wire.decode_response(data)):
            if isinstance(event, Assigned):
                self._handler.assigned(event)
            else:
                self._handler.removed(event)
        self._wake.set()

    async def _write(self, call: _Call) -> None:
        """Write what the engine has to say; ends when the stream has to be opened anew."""
        while not self._reconnect.is_set():
            for request in self._engine.take():
                await call.write(wire.encode_request(request))
            await self._wake.wait()
            self._wake.clear()


def _reason(errors: BaseExceptionGroup[BaseException]) -> str:
    """First RPC status in a group of errors, else the first error."""
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _reason(error)
        if isinstance(error, grpc.aio.AioRpcError):
            return f"{error.code().name}: {error.details()}"
    return str(errors.exceptions[0])
