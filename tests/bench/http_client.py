"""A closed loop over HTTP/1.1 that costs little: prepared bytes out, lengths counted in.

The same client asks the mesh and Triton, so that what differs is what is asked.
"""

import asyncio
import time
from typing import Final, cast

import uvloop

from tests.bench.sample import Sample

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
CONNECT_S: Final = 5.0
STALL_S: Final = 60.0
"""A loop that lasts so much longer than it should has met an answer that never ends."""


class Connection(asyncio.Protocol):
    """One request at a time on one connection, until the deadline."""

    def __init__(self, request: bytes, *, deadline_s: float, ended: asyncio.Future[None]) -> None:
        self.latencies_s: list[float] = []
        self._request = request
        self._deadline_s = deadline_s
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._missing = 0
        self._sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none by type, only by what they do.
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(error or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            self._head += data
            if _END not in self._head:
                return
            head, _, body = self._head.partition(_END)
            length = _length_of(head)
            if length is None:
                self._fail(f"not an answer to measure: {head + body!r}")
                return
            self._missing = length - len(body)
            self._head = b""
        if self._missing == 0:
            self._answered()

    def _fail(self, why: str) -> None:
        if not self._ended.done():
            self._ended.set_exception(ConnectionError(why))
        assert self._transport is not None
        self._transport.abort()

    def _answered(self) -> None:
        now_s = time.perf_counter()
        self.latencies_s.append(now_s - self._sent_s)
        if now_s < self._deadline_s:
            self._send()
            return
        if not self._ended.done():
            self._ended.set_result(None)
        assert self._transport is not None
        self._transport.close()

    def _send(self) -> None:
        assert self._transport is not None
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)


def _length_of(head: bytes) -> int | None:
    """Length of the body after this head; None unless it is a plain 200."""
    status, *lines = head.lower().split(b"\r\n")
    lengths = [int(line[len(_LENGTH) :]) for line in lines if line.startswith(_LENGTH)]
    return lengths[0] if b" 200" in status and lengths else None


def http_loop(
    address: tuple[str, int], request: bytes, *, connections: int, seconds: float
) -> Sample:
    """Send a request again and again on every connection for a time; raises when one fails."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_loop(address, request, connections=connections, seconds=seconds))


async def _loop(
    address: tuple[str, int], request: bytes, *, connections: int, seconds: float
) -> Sample:
    loop = asyncio.get_running_loop()
    began_s = time.perf_counter()
    made = []
    ends = []
    for _ in range(connections):
        ended: asyncio.Future[None] = loop.create_future()
        one = Connection(request, deadline_s=began_s + seconds, ended=ended)
        async with asyncio.timeout(CONNECT_S):
            await loop.create_connection(lambda one=one: one, *address)  # type: ignore[misc]
        made.append(one)
        ends.append(ended)
    async with asyncio.timeout(seconds + STALL_S):
        await asyncio.gather(*ends)
    took_s = time.perf_counter() - began_s
    return Sample([latency for one in made for latency in one.latencies_s], took_s)
