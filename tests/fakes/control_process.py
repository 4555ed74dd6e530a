"""Control servers as processes; by fork for tests that start very many, since imports take long.

Run as a program it imports everything, then reads a line of JSON for each server: its arguments
and its log. It forks one and answers with its process id.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from headrace_xds import __main__ as program
from headrace_xds.compiler import check
from headrace_xds.source.files import read_folder
from headrace_xds.translate.fragments import FragmentCache


class Server(Protocol):
    """A control server that runs."""

    @property
    def returncode(self) -> int | None:
        """Exit status, None while it runs."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""

    async def wait(self) -> int:
        """Wait for its end."""


Launch = Callable[[Sequence[str], Path], Awaitable[Server]]
"""Starts a control server with these arguments and this log."""


async def start(arguments: Sequence[str], log: Path) -> Server:
    """Start a control server in the ordinary way."""
    with log.open("ab") as stream:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace_xds", *arguments, stderr=stream
        )


class Forked:
    """One control server; like a process of asyncio, as far as tests need it."""

    def __init__(self, pid: int) -> None:
        self.returncode: int | None = None
        self._pid = pid

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self._pid, number)

    async def wait(self) -> int:
        """Wait until it is gone; how it ended only its parent knows."""
        while self.returncode is None:
            try:
                os.kill(self._pid, 0)
                await asyncio.sleep(0.005)
            except ProcessLookupError:
                self.returncode = 0
        return self.returncode


class Zygote:
    """A process that has imported the control server and forks it on demand."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def launch(self, arguments: Sequence[str], log: Path) -> Forked:
        """Start a control server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), str(log)]).encode() + b"\n")
        return Forked(int(await self._process.stdout.readline()))


@asynccontextmanager
async def zygote() -> AsyncIterator[Zygote]:
    """A running zygote."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Zygote(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def serve() -> int:
    """Fork a control server for every line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    cache = FragmentCache()
    for line in sys.stdin:
        arguments, log = json.loads(line)
        # What a first configuration makes libraries build, no later one needs again.
        check(read_folder(Path(arguments[arguments.index("--config") + 1])).files, cache)
        pid = os.fork()
        if pid == 0:
            return _become(arguments, log)
        print(pid, flush=True)
    return 0


def _become(arguments: list[str], log: str) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
    sys.argv[1:] = arguments
    return program.main()


if __name__ == "__main__":
    sys.exit(serve())
