"""``InferStream``: one ModelStreamInfer call of a client.

Each request of the stream becomes a call to Triton of its own, half-closed at once. So its end is
known without trusting ids, its errors are its own, it can be counted and cancelled alone, and an
idle stream of a client never keeps Triton from shutting down. Answers of different requests may
interleave, as Triton's own do; answers of one request keep their order.

Triton does not slow down for a slow reader, so its answers are taken at once into a bounded buffer.
A client that lets it fill is cut off.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from headrace import limits
from headrace.oip import upstream
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import messages
from headrace_sidecar.gpu.grpc_caller import Caller
from headrace_sidecar.gpu.serving import Served, Serving
from headrace_sidecar.gpu.triton import Triton
from headrace_sidecar.gpu.visit import Visit

Accept = Callable[[bytes], Awaitable[tuple[Served, bytes]]]
Write = Callable[[bytes], Awaitable[None]]

_ERROR_TAG: Final = b"\x0a"
"""First byte of a ModelStreamInferResponse that has an ``error_message`` (field 1)."""


class InferStream:
    """Requests of one stream in flight, and the answers not yet written."""

    def __init__(
        self,
        serving: Serving,
        triton: Triton,
        caller: Caller,
        *,
        accept: Accept,
        clock: Callable[[], float],
        buffer_bytes: int = limits.STREAM_BUFFER_BYTES,
    ) -> None:
        self._serving = serving
        self._triton = triton
        self._caller = caller
        self._accept = accept
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._answers: deque[bytes] = deque()
        self._held_bytes = 0
        self._running = 0
        self._half_closed = False
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(limits.STREAM_REQUESTS)

    def __repr__(self) -> str:
        """One line for operators."""
        return (
            f"InferStream({self._running} running, {len(self._answers)} answers of "
            f"{self._held_bytes} bytes unread, half closed: {self._half_closed})"
        )

    async def run(self, requests: AsyncIterator[bytes], write: Write) -> None:
        """Serve the stream until the client has every answer, or the node leaves."""
        try:
            async with asyncio.timeout(self._caller.timeout_s(limits.STREAM_DEADLINE_S)):
                await self._serve(requests, write)
        except TimeoutError as error:
            raise Refused(Refusal.TIMEOUT, "the stream has been open for too long") from error
        except ExceptionGroup as group:
            raise _first(group) from group

    async def _serve(self, requests: AsyncIterator[bytes], write: Write) -> None:
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._read(requests, group))
            drain = group.create_task(self._watch_drain())
            await self._write(write)
            reader.cancel()
            drain.cancel()

    async def _read(self, requests: AsyncIterator[bytes], group: asyncio.TaskGroup) -> None:
        async for data in requests:
            await self._room.acquire()
            self._running += 1
            group.create_task(self._answer(data))
        self._half_closed = True
        self._wake.set()

    async def _watch_drain(self) -> None:
        while not self._serving.draining:
            await self._serving.change.wait()
        self._wake.set()

    async def _write(self, write: Write) -> None:
        """Write answers as they come; return when none can come any more."""
        while True:
            self._wake.clear()
            while self._answers:
                answer = self._answers.popleft()
                await write(answer)
                self._held_bytes -= len(answer)
            if self._running:
                await self._wake.wait()
            elif self._half_closed:
                return
            elif self._serving.draining:
                raise Refused(Refusal.DRAINING, f"node {self._serving.node} is leaving")
            else:
                await self._wake.wait()

    async def _answer(self, data: bytes) -> None:
        try:
            with self._serving.bodies.hold() as held:
                held.add(len(data))
                await self._infer(data)
        except Refused as refused:
            if refused.refusal is Refusal.SLOW_READER:
                raise
            self._serving.hear(refused)
            self._keep(_error(data, refused))
        finally:
            self._running -= 1
            self._room.release()
            self._wake.set()

    async def _infer(self, data: bytes) -> None:
        served, message = await self._accept(data)
        assignment = served.assignment
        sender = messages.stream_sender(assignment.model, assignment.version)
        answers = self._triton.stream(message, served, timeout_s=self._caller.timeout_s())
        stamped = bool(self._caller.stamped)
        with Visit(
            self._serving, served, tier=self._caller.tier, clock=self._clock, stamped=stamped
        ):
            async with aclosing(answers):
                async for answer in answers:
                    self._check(answer, served)
                    self._keep(answer + sender)

    def _check(self, answer: bytes, served: Served) -> None:
        if answer[:1] != _ERROR_TAG:
            return
        text = service_pb2.ModelStreamInferResponse.FromString(answer).error_message
        self._triton.hear(text, served.triton_model)
        raise upstream.refuse_message(text, idempotent=served.assignment.idempotent)

    def _keep(self, answer: bytes) -> None:
        if self._held_bytes + len(answer) > self._buffer_bytes and self._answers:
            raise Refused(Refusal.SLOW_READER, f"{self._held_bytes} bytes of answers were not read")
        self._held_bytes += len(answer)
        self._answers.append(answer)
        self._wake.set()


def _error(data: bytes, refused: Refused) -> bytes:
    """Answer that tells of a refusal inside the stream, under the id of its request."""
    answer = service_pb2.ModelStreamInferResponse(
        error_message=f"{refused.refusal.code}: {refused.message}"
    )
    try:
        asked = messages.parse_request(data)
    except DecodeError:
        return bytes(answer.SerializeToString())
    answer.infer_response.id = asked.id
    answer.infer_response.model_name = asked.model_name
    answer.infer_response.model_version = asked.model_version
    return bytes(answer.SerializeToString())


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The refusal in a group of errors; without one, whatever went wrong first."""
    refusals = group.subgroup(Refused) or group
    error: Exception = refusals.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
