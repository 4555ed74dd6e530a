"""A hub, its server and one real Envoy, with resources written by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace_xds.messages import Variant
from headrace_xds.server import AdsServer, serve
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Resource
from tests.fakes.ads_envoy import AdsEnvoy, ads_envoy, free_port, upstream
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import cluster, endpoints, listener, routes

NODE = "gateway/t"


@dataclass
class Mesh:
    """A hub, its server, one real Envoy and one upstream."""

    world: RecordedHub
    server: AdsServer
    envoy: AdsEnvoy
    upstream: int
    port: int
    variant: Variant

    def publish(self, type_url: str, *resources: Resource) -> None:
        """Replace everything of a type for the Envoy."""
        self.world.publish(NODE, type_url, *resources)

    async def restart(self, world: RecordedHub) -> None:
        """Serve another hub on the same port, as a control server that was restarted does."""
        self.world = world
        self.server = await serve(world.hub, f"127.0.0.1:{self.server.port}")

    async def hosts(self, name: str, count: int) -> None:
        """Wait until a cluster has so many endpoints, -1 for no cluster."""

        async def reached() -> bool:
            return await self.envoy.hosts(name) == count

        await until(reached, what=f"{name} has {count} hosts")

    async def status(self, status: int, *, port: int | None = None) -> None:
        """Wait until a request through the listener has a status."""

        async def reached() -> bool:
            return await self.envoy.get(port or self.port) == status

        await until(reached, what=f"status {status}")


@asynccontextmanager
async def running(
    folder: Path, world: RecordedHub, upstream_port: int, variant: Variant = Variant.DELTA
) -> AsyncIterator[Mesh]:
    """Serve a hub to a real Envoy."""
    server = await serve(world.hub, "127.0.0.1:0")
    mesh = None
    try:
        port = server.port
        async with ads_envoy(folder, ads_port=port, node_id=NODE, variant=variant) as envoy:
            mesh = Mesh(world, server, envoy, upstream_port, 0, variant)
            yield mesh
    finally:
        await (mesh.server if mesh else server).stop()


@asynccontextmanager
async def one_cluster(folder: Path, variant: Variant = Variant.DELTA) -> AsyncIterator[Mesh]:
    """Cluster ``a`` behind one listener, in effect."""
    world, port = RecordedHub(), free_port()
    async with upstream() as upstream_port:
        world.publish(NODE, CLUSTER, cluster("a"))
        world.publish(NODE, ENDPOINTS, endpoints("a", upstream_port))
        world.publish(NODE, LISTENER, listener("web", port, "table"))
        world.publish(NODE, ROUTES, routes("table", "a"))
        async with running(folder, world, upstream_port, variant) as mesh:
            mesh.port = port
            await mesh.status(200)
            await until(lambda: world.seen.holds(routes("table", "a")))
            yield mesh
