"""What a real Envoy asks of secrets and is told (R9, R12)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from envoy.config.core.v3.base_pb2 import DataSource
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2

from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    SECRET,
    Resource,
    resource,
)
from tests.fakes.ads_envoy import free_port, upstream
from tests.fakes.ads_mesh import NODE, Mesh, running
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import cluster, endpoints, listener, routes
from tests.fakes.certificates import Pair, pair
from tests.fakes.tls_caller import der, shown

pytestmark = [pytest.mark.e2e]


def secret(name: str, made: Pair) -> Resource:
    """A certificate and its key under a name."""
    message = secret_pb2.Secret(
        name=name,
        tls_certificate=common_pb2.TlsCertificate(
            certificate_chain=DataSource(inline_bytes=made.certificate),
            private_key=DataSource(inline_bytes=made.key),
        ),
    )
    return resource(SECRET, name, message.SerializeToString(deterministic=True))


@asynccontextmanager
async def listening(
    folder: Path, secrets: list[Resource], *asked: str
) -> AsyncIterator[tuple[Mesh, dict[str, int]]]:
    """A listener for each secret that is asked for, and the ports by secret."""
    ports = {name: free_port() for name in asked}
    world = RecordedHub()
    async with upstream() as upstream_port:
        world.publish(NODE, CLUSTER, cluster("a"))
        world.publish(NODE, ENDPOINTS, endpoints("a", upstream_port))
        world.publish(NODE, ROUTES, routes("table", "a"))
        world.publish(NODE, SECRET, *secrets)
        found = [listener(name, port, "table", secret=name) for name, port in ports.items()]
        world.publish(NODE, LISTENER, *found)
        async with running(folder, world, upstream_port) as mesh:
            yield mesh, ports


async def shows(port: int, made: Pair) -> None:
    async def reached() -> bool:
        return await shown(port) == der(made)

    await until(reached, what=f"a certificate on port {port}")


async def test_r12_of_three_secrets_two_are_delivered_and_one_later(tmp_path: Path) -> None:
    one, two, three = (secret(name, pair(name)) for name in ("one", "two", "three"))
    async with listening(tmp_path, [one, two], "one", "two", "three") as (mesh, ports):
        for name in ("one", "two"):
            await shows(ports[name], pair(name))
        await until(lambda: mesh.world.sent.removals(SECRET) == ["three"], what="its absence told")
        mesh.publish(SECRET, one, two, three)
        await shows(ports["three"], pair("three"))
        assert [mesh.world.sent.count(each) for each in (one, two, three)] == [1, 1, 1]
        assert not mesh.world.seen.nacks


async def test_r12_a_new_secret_does_not_wait_for_an_old_one_that_is_gone(tmp_path: Path) -> None:
    old, new = secret("old", pair("old")), secret("new", pair("new"))
    async with listening(tmp_path, [old], "old") as (mesh, ports):
        await shows(ports["old"], pair("old"))
        mesh.publish(SECRET, new)
        port = free_port()
        both = [
            listener("old", ports["old"], "table", secret="old"),
            listener("new", port, "table", secret="new"),
        ]
        mesh.publish(LISTENER, *both)
        await shows(port, pair("new"))
        # Envoy was told that the old one is gone, and goes on with what it has.
        assert mesh.world.sent.removals(SECRET) == ["old"]
        assert await shown(ports["old"]) == der(pair("old"))
        assert not mesh.world.seen.nacks
