"""A TCP relay that tests cut and join: the network between a sidecar and the control server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_CHUNK_BYTES = 65_536


class Relay:
    """Connections from one loopback port to another; ``cut`` ends them and takes no new ones."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.joined = True
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def connections(self) -> int:
        """Sockets that are open, two for each connection."""
        return len(self._writers)

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self.joined = False
        for writer in self._writers:
            writer.transport.abort()

    def join(self) -> None:
        """Take connections again."""
        self.joined = True

    async def close(self) -> None:
        """Stop for good."""
        self.cut()
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.joined:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            self._writers -= {writer, back}
            writer.transport.abort()
            back.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def relay(target_port: int) -> AsyncIterator[Relay]:
    """A relay to a port, closed at the end."""
    made = Relay(target_port)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
