"""One tritonserver process: started by path, known by id, its output passed on, ended in time."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from headrace_models.loglines import LogLines

_CHUNK_BYTES = 64 * 1024


class TritonProcess:
    """A started tritonserver; ``spawn`` makes one, ``stop`` ends it and its stubs."""

    def __init__(self, process: asyncio.subprocess.Process, output: int) -> None:
        self._process = process
        self._output = output

    def __repr__(self) -> str:
        return f"TritonProcess(pid={self.pid}, code={self._process.returncode})"

    @classmethod
    async def spawn(
        cls, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> "TritonProcess":
        """Start it in a process group of its own, so that its stubs can be ended with it."""
        # A pipe made here, not by asyncio: stubs inherit its other end, and waiting for the
        # process must not wait until every stub has closed it.
        output, theirs = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                env=dict(environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(theirs)
        return cls(process, output)

    @property
    def pid(self) -> int:
        """Process id; also the id of its group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Exit code, negative for a signal."""
        return await self._process.wait()

    async def pump(self, log: Callable[[str], None]) -> None:
        """Pass its output on line by line until it and every stub have closed it."""
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._output, "rb", 0)
        )
        lines = LogLines()
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                for line in lines.feed(chunk):
                    log(line)
            for line in lines.close():
                log(line)
        finally:
            transport.close()

    async def stop(self, *, within_s: float) -> None:
        """Ask it to end, kill what is left at the deadline; returns when it is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._process.wait()
        # Stubs of a server that died watch for that, but one that hangs does not.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()
