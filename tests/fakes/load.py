"""An open-loop client: requests leave on schedule whatever the answers do, and each answer is kept.

Closed-loop clients slow down with the server and so hide its stalls; this one does not.
"""

import asyncio
import io
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

MAX_OUTSTANDING = 256
"""Requests in flight at once; reaching it is a failure of the test's premise and raises."""


@dataclass(frozen=True)
class Call:
    """One request to make."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came back; status 0 means that the connection broke."""

    at_s: float
    took_s: float
    status: int
    headers: Mapping[str, str]
    body: bytes
    error: str = ""

    @property
    def version(self) -> str:
        """Version that answered."""
        return self.headers.get("headrace-served-version", "")

    @property
    def node(self) -> str:
        """Node that answered."""
        return self.headers.get("headrace-served-node", "")


@dataclass
class Traffic:
    """Every answer of a load, in the order they came."""

    answers: list[Answer] = field(default_factory=list)

    def since(self, at_s: float) -> "Traffic":
        """The answers to requests that were sent at or after a moment of the monotonic clock."""
        return Traffic([a for a in self.answers if a.at_s >= at_s])

    @property
    def failed(self) -> list[Answer]:
        """Answers that are not 200."""
        return [a for a in self.answers if a.status != 200]

    @property
    def statuses(self) -> Counter[int]:
        """How often each status came."""
        return Counter(a.status for a in self.answers)

    def share(self, key: Callable[[Answer], str]) -> dict[str, float]:
        """Share of the successful answers by some property of theirs."""
        counts = Counter(key(a) for a in self.answers if a.status == 200)
        total = sum(counts.values())
        return {name: n / total for name, n in sorted(counts.items())} if total else {}


async def send(session: aiohttp.ClientSession, url: str, call: Call) -> Answer:
    """One request; a broken connection is an answer too."""
    began = time.monotonic()
    try:
        async with session.post(
            url + call.path, data=io.BytesIO(call.body), headers=call.headers
        ) as reply:
            body = await reply.read()
            took = time.monotonic() - began
            return Answer(began, took, reply.status, dict(reply.headers), body)
    except (aiohttp.ClientError, TimeoutError) as error:
        return Answer(began, time.monotonic() - began, 0, {}, b"", repr(error))


async def send_all(url: str, calls: list[Call], *, concurrency: int = 8) -> Traffic:
    """Every call once, a few at a time."""
    traffic = Traffic()
    queue = list(reversed(calls))

    async def work(session: aiohttp.ClientSession) -> None:
        while queue:
            traffic.answers.append(await send(session, url, queue.pop()))

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work(session))
    return traffic


@asynccontextmanager
async def steady(url: str, call: Callable[[int], Call], *, rps: float) -> AsyncIterator[Traffic]:
    """Load at a constant rate for as long as the block runs; leaving waits for every answer."""
    traffic = Traffic()
    running: set[asyncio.Task[None]] = set()
    stop = asyncio.Event()

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        traffic.answers.append(await send(session, url, call(number)))

    async def pace(session: aiohttp.ClientSession, tasks: asyncio.TaskGroup) -> None:
        began = time.monotonic()
        number = 0
        while not stop.is_set():
            if len(running) >= MAX_OUTSTANDING:
                raise RuntimeError(f"{MAX_OUTSTANDING} requests are unanswered: the mesh stalls")
            task = tasks.create_task(one(session, number))
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
            await asyncio.sleep(max(0.0, began + number / rps - time.monotonic()))

    timeout = aiohttp.ClientTimeout(total=30)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(pace(session, tasks))
        try:
            yield traffic
        finally:
            stop.set()


async def eventually(
    true: Callable[[], object], *, within_s: float = 20.0, what: str = "the condition"
) -> None:
    """Wait until something holds; AssertionError when it does not within the time.

    What cannot be asked, because the program that would answer is down, does not hold yet.
    """
    deadline = time.monotonic() + within_s
    while True:
        if await _holds(true):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not hold within {within_s} s")
        await asyncio.sleep(0.05)


async def _holds(true: Callable[[], object]) -> bool:
    try:
        result = true()
        return bool(await result if asyncio.iscoroutine(result) else result)
    except OSError:
        return False
