"""What a real Envoy refuses hurts nobody else, and mending it reaches every Envoy at once."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace_xds.server import serve
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, Resource
from tests.fakes.ads_envoy import AdsEnvoy, ads_envoy, free_port, upstream
from tests.fakes.ads_recorder import until
from tests.fakes.ads_resources import cluster, endpoints, listener, routes
from tests.fakes.publishing import Publishing

pytestmark = pytest.mark.e2e

EU = "gateway/eu"
REPLICAS = (f"{EU}/1", f"{EU}/2")
MENDED_WITHIN_S = 1.0


def table(name: str, target: str, path: str = "/", regex: str = "") -> Resource:
    match = {"safe_regex": {"regex": regex}} if regex else {"prefix": path}
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": match, "route": {"cluster": target}}],
    }
    return routes(name, target, virtual_hosts=[host])


@dataclass
class World:
    """Two replicas of one gateway, each a real Envoy, behind a publisher."""

    publishing: Publishing
    folder: Path
    stack: AsyncExitStack
    ads_port: int
    upstream: int
    ports: dict[str, int]
    envoys: dict[str, AdsEnvoy]

    async def start(self, node: str) -> AdsEnvoy:
        """Start another Envoy."""
        folder = self.folder / node.replace("/", "-")
        folder.mkdir(exist_ok=True)
        envoy = await self.stack.enter_async_context(
            ads_envoy(folder, ads_port=self.ads_port, node_id=node)
        )
        self.envoys[node] = envoy
        return envoy

    def publish(self, *tables: Resource, clusters: tuple[str, ...] = ("a", "b")) -> None:
        """Serve these tables, and a listener for each that any Envoy may bind."""
        self.publishing.publish(
            EU,
            *map(cluster, clusters),
            *(endpoints(name, self.upstream) for name in clusters),
            *(
                listener(name, port, name, enable_reuse_port=True)
                for name, port in self.ports.items()
            ),
            *tables,
        )

    async def every(self, found: Resource) -> float:
        """Wait until every Envoy has acknowledged a version; how long that took."""
        began_s = time.monotonic()
        fleet = self.publishing.fleet

        def taken() -> bool:
            proxies = [fleet.proxies.get(node) for node in self.envoys]
            types = [proxy and proxy.types.get(found.type_url) for proxy in proxies]
            return all(kind and kind.acked.get(found.name) == found.version for kind in types)

        await until(taken, what=f"all have {found}")
        return time.monotonic() - began_s


@asynccontextmanager
async def running(folder: Path, canary: str = "") -> AsyncIterator[World]:
    """Tables ``one`` and ``two``, in effect on both replicas."""
    publishing = Publishing(canary=canary)
    async with AsyncExitStack() as stack:
        upstream_port = await stack.enter_async_context(upstream())
        ports = {"one": free_port(), "two": free_port()}
        server = await serve(publishing.recorded.hub, "127.0.0.1:0")
        stack.push_async_callback(server.stop)
        world = World(publishing, folder, stack, server.port, upstream_port, ports, {})
        world.publish(table("one", "a"), table("two", "a"))
        for node in REPLICAS:
            await world.start(node)
        await world.every(table("one", "a"))
        await world.every(table("two", "a"))
        yield world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Two replicas that are served alike."""
    async with running(tmp_path) as world:
        yield world


async def refused(world: World, name: str) -> str:
    """Wait until a resource is quarantined; the text of the Envoy that refused it."""
    quarantine = world.publishing.publisher.quarantine

    def held() -> bool:
        return any(refusal.name == name for refusal in quarantine)

    await until(held, what=f"{name} quarantined")
    return next(refusal.message for refusal in quarantine if refusal.name == name)


async def test_a_bad_route_table_leaves_its_siblings_and_a_restarted_envoy_alone(
    world: World,
) -> None:
    bad, sibling = table("one", "a", regex="(("), table("two", "b")
    world.publish(bad, sibling)
    assert "missing )" in await refused(world, "one")
    await world.every(sibling)
    assert await world.envoys[REPLICAS[0]].get(world.ports["one"]) == 200
    times_sent = world.publishing.recorded.sent.count(bad)
    # Once with its sibling and once alone, to each replica that was connected.
    assert times_sent <= 2 * len(REPLICAS)
    third = await world.start(f"{EU}/3")

    async def serves() -> bool:
        return await third.get(world.ports["one"]) == 200

    await until(serves, what="a new Envoy serves the last good table")
    await world.every(table("one", "a"))
    assert world.publishing.recorded.sent.count(bad) == times_sent


async def test_mending_reaches_every_envoy_within_a_second(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    took_s = []
    for attempt in range(5):
        world.publish(table("one", "a", regex="(" * (attempt + 2)), table("two", "a"))
        await until(lambda: len(list(world.publishing.publisher.active())) == 1)
        mended = table("one", "b", path=f"/{attempt}")
        world.publish(mended, table("two", "a"))
        took_s.append(await world.every(mended))
    record_property("mended_s", took_s)
    print(f"mended on 2 Envoys within (s): {[round(value, 3) for value in took_s]}")
    # Not a benchmark: the issue of a mended mesh is that nobody waits for a retry or a timeout.
    assert statistics.median(took_s) < MENDED_WITHIN_S


async def test_the_canary_alone_is_sent_what_it_refuses(tmp_path: Path) -> None:
    async with running(tmp_path, canary=REPLICAS[0]) as world:
        bad, sibling = table("one", "a", regex="(("), table("two", "b")
        world.publish(bad, sibling)
        await refused(world, "one")
        await world.every(sibling)
        await world.every(table("one", "a"))
        responses = world.publishing.recorded.sent.responses
        # With its sibling and alone, to one Envoy.
        assert sum(bad in response.resources for response in responses) == 2
        mended = table("one", "b")
        world.publish(mended, sibling)
        await world.every(mended)


@pytest.mark.parametrize("type_url", [CLUSTER, ENDPOINTS, LISTENER])
async def test_what_is_refused_of_every_type_is_held_and_its_siblings_are_live(
    world: World, type_url: str
) -> None:
    busy = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with busy:
        taken = busy.sockets[0].getsockname()[1]
        good = cluster("c"), endpoints("c", world.upstream)
        bad = {
            CLUSTER: cluster("bad", lb_subset_config={"subset_selectors": [{"keys": []}]}, type=9),
            ENDPOINTS: endpoints("a", world.upstream, address="no address"),
            LISTENER: listener("bad", taken, "one", enable_reuse_port=False),
        }[type_url]
        for found in (*good, bad):
            world.publishing.add(EU, found)
        message = await refused(world, bad.name)
        assert message
        await world.every(good[0])
        await world.every(good[1])
        assert await world.envoys[REPLICAS[1]].get(world.ports["two"]) == 200
        assert bad not in (await sent_to_new(world))


async def sent_to_new(world: World) -> list[Resource]:
    """What an Envoy that starts now is sent."""
    before = len(world.publishing.recorded.sent.responses)
    node = f"{EU}/new"
    await world.start(node)
    await world.every(table("two", "a"))
    responses = world.publishing.recorded.sent.responses[before:]
    return [found for response in responses for found in response.resources]
