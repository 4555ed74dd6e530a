"""Long streaming answers through a real Envoy whose configuration changes all the time.

Every stream counts: one line a tick, the number in it. One that was cut, or that lost a byte, does
not end with the last number.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import aiohttp

from headrace_xds.messages import Variant
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Resource
from tests.fakes.ads_envoy import free_port
from tests.fakes.ads_mesh import NODE, Mesh, running
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import HOST, cluster, endpoints, listener, routes

TICK_S = 0.1
_CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass
class Outcome:
    """How the streams ended."""

    complete: int
    cut: int
    pushes: int
    seconds: float


@asynccontextmanager
async def _streaming(ticks: int) -> AsyncIterator[int]:
    """A server whose every answer is a stream of so many ticks; yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_CHUNKED)
            for number in range(ticks):
                line = b"data: %d\n\n" % number
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))
                await writer.drain()
                await asyncio.sleep(TICK_S)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _is_complete(http: aiohttp.ClientSession, port: int, ticks: int) -> bool:
    expected = b"".join(b"data: %d\n\n" % number for number in range(ticks))
    try:
        async with http.get(f"http://{HOST}:{port}/") as answer:
            return answer.status == 200 and await answer.read() == expected
    except aiohttp.ClientError:
        return False


def _table(target: str, *removed: str) -> Resource:
    """Routes everything to a cluster, for as long as it takes: Envoy's own bound is 15 s."""
    action = {"cluster": target, "timeout": "0s"}
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": action}],
    }
    return routes("table", target, virtual_hosts=[host], request_headers_to_remove=list(removed))


class Pushes:
    """Edits of everything that may change under a stream; the listener is not among them."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._number = 0
        self._names = ["a"]
        self._policies = cycle(["LEAST_REQUEST", "RANDOM", "ROUND_ROBIN"])
        self.made = 0

    def kinds(self) -> Sequence[Callable[[], None]]:
        """What is done in turns."""
        return (self._weigh, self._change, self._reroute, self._empty, self._replace, self._fill)

    async def run(self, count: int, seconds: float) -> None:
        """So many pushes, spread over a time."""
        for push in islice(cycle(self.kinds()), count):
            self._number += 1
            self.made += 1
            push()
            await asyncio.sleep(seconds / count)

    def _clusters(self) -> list[Resource]:
        return [cluster(name, lb_policy=next(self._policies)) for name in self._names]

    def _endpoints(self, *ports: int) -> list[Resource]:
        return [endpoints(name, *ports, weight=1 + self._number % 99) for name in self._names]

    def _weigh(self) -> None:
        self._mesh.publish(ENDPOINTS, *self._endpoints(self._mesh.upstream))

    def _change(self) -> None:
        self._mesh.publish(CLUSTER, *self._clusters())

    def _reroute(self) -> None:
        self._mesh.publish(ROUTES, _table(self._names[-1], f"x-{self._number}"))

    def _empty(self) -> None:
        """The hosts that streams come from leave."""
        self._mesh.publish(ENDPOINTS, *self._endpoints())

    def _replace(self) -> None:
        """Another cluster takes over; the one that streams go through is deleted."""
        self._names = [f"c{self._number}"]
        self._mesh.publish(ENDPOINTS, *self._endpoints(self._mesh.upstream))
        self._mesh.publish(CLUSTER, *self._clusters())
        self._mesh.publish(ROUTES, _table(self._names[0]))

    def _fill(self) -> None:
        self._mesh.publish(ENDPOINTS, *self._endpoints(self._mesh.upstream))


async def survive(folder: Path, *, streams: int, pushes: int, seconds: float) -> Outcome:
    """Run streams of so many seconds under so many pushes."""
    ticks, port, world = int(seconds / TICK_S), free_port(), RecordedHub()
    timeout = aiohttp.ClientTimeout(total=seconds * 2 + 60)
    loop = asyncio.get_running_loop()
    async with (
        _streaming(ticks) as upstream,
        aiohttp.ClientSession(timeout=timeout) as http,
        running(folder, world, upstream, Variant.DELTA) as mesh,
    ):
        world.publish(NODE, CLUSTER, cluster("a"))
        world.publish(NODE, ENDPOINTS, endpoints("a", upstream))
        world.publish(NODE, LISTENER, listener("web", port, "table"))
        world.publish(NODE, ROUTES, _table("a"))
        await until(lambda: world.seen.holds(_table("a")))
        await mesh.hosts("a", 1)
        began = loop.time()
        making = Pushes(mesh)
        async with asyncio.TaskGroup() as tasks:
            ends = [tasks.create_task(_is_complete(http, port, ticks)) for _ in range(streams)]
            await asyncio.sleep(5 * TICK_S)
            tasks.create_task(making.run(pushes, seconds * 0.9 - 5 * TICK_S))
        complete = sum(end.result() for end in ends)
        deleted = len(world.sent.removals(CLUSTER))
        assert deleted > 0, "the cluster of the streams was never deleted"
        return Outcome(complete, streams - complete, making.made, loop.time() - began)
