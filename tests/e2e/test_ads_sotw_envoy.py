"""A real Envoy over the state of the world (``api_type: GRPC``) follows every edit."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_xds.messages import Variant
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.fakes.ads_envoy import free_port
from tests.fakes.ads_mesh import NODE, Mesh, one_cluster
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import cluster, endpoints, listener, routes

pytestmark = [pytest.mark.e2e]


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    """Cluster ``a`` behind one listener, in effect."""
    async with one_cluster(tmp_path, Variant.SOTW) as mesh:
        yield mesh


async def test_edits_and_deletions_of_every_type_take_effect(mesh: Mesh) -> None:
    port = free_port()
    mesh.publish(CLUSTER, cluster("a"), cluster("b"))
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b", mesh.upstream))
    mesh.publish(LISTENER, listener("web", mesh.port, "table"), listener("side", port, "other"))
    mesh.publish(ROUTES, routes("table", "a"), routes("other", "b"))
    await mesh.status(200, port=port)
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b"))
    await mesh.status(503, port=port)
    assert await mesh.envoy.get(mesh.port) == 200
    gone = {"name": "all", "domains": ["*"], "routes": []}
    mesh.publish(ROUTES, routes("table", "a"), routes("other", "b", virtual_hosts=[gone]))
    await mesh.status(404, port=port)
    mesh.publish(LISTENER, listener("web", mesh.port, "table"))
    mesh.publish(ROUTES, routes("table", "a"))
    mesh.publish(CLUSTER, cluster("a"))
    await mesh.hosts("b", -1)
    await mesh.status(0, port=port)
    assert await mesh.envoy.get(mesh.port) == 200
    assert mesh.world.seen.nacks == []


async def test_a_change_of_one_cluster_touches_no_other(mesh: Mesh) -> None:
    names = [f"c{number}" for number in range(20)]
    mesh.publish(ENDPOINTS, *(endpoints(name, mesh.upstream) for name in ("a", *names)))
    mesh.publish(CLUSTER, cluster("a"), *map(cluster, names))
    for name in names:
        await mesh.hosts(name, 1)
    modified = await mesh.envoy.stat("cluster_manager.cluster_modified")
    changed = cluster("c7", lb_policy="RANDOM")
    mesh.publish(CLUSTER, cluster("a"), *(cluster(n) for n in names if n != "c7"), changed)
    await until(lambda: mesh.world.seen.holds(changed))
    assert await mesh.envoy.stat("cluster_manager.cluster_modified") == modified + 1
    assert mesh.world.sent.count(endpoints("c7", mesh.upstream)) == 2
    assert mesh.world.sent.count(endpoints("c8", mesh.upstream)) == 1


async def test_a_server_that_restarted_is_followed(mesh: Mesh) -> None:
    await mesh.server.stop()
    assert await mesh.envoy.get(mesh.port) == 200
    again = RecordedHub()
    again.publish(NODE, CLUSTER, cluster("b"))
    again.publish(NODE, ENDPOINTS, endpoints("b", mesh.upstream))
    again.publish(NODE, LISTENER, listener("web", mesh.port, "table"))
    again.publish(NODE, ROUTES, routes("table", "b"))
    await mesh.restart(again)
    await mesh.hosts("b", 1)
    await mesh.hosts("a", -1)
    await mesh.status(200)
    assert again.seen.nacks == []
