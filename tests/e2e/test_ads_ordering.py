"""Make before break with a real Envoy: no request fails while clusters come and go (R15)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from headrace import limits
from headrace_xds.messages import Variant
from headrace_xds.translate.bootstrap import bootstrap
from headrace_xds.translate.packing import ads
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.fakes import mesh_ir
from tests.fakes.ads_mesh import NODE, Mesh, one_cluster
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import ADS, cluster, endpoints, listener, routes

pytestmark = [pytest.mark.e2e]


@pytest.fixture(params=Variant, ids=lambda variant: variant.value)
async def mesh(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Mesh]:
    """Cluster ``a`` behind one listener, in effect."""
    async with one_cluster(tmp_path, request.param) as mesh:
        yield mesh


async def test_r15_routes_to_a_missing_cluster_wait_until_envoy_has_it(mesh: Mesh) -> None:
    mesh.publish(ROUTES, routes("table", "b"))
    (connection,) = mesh.world.hub.connections
    await until(lambda: connection.stream.held_back == {"table": frozenset({"b"})})
    assert await mesh.envoy.get(mesh.port) == 200
    mesh.publish(CLUSTER, cluster("a"), cluster("b"))
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b", mesh.upstream))
    await until(lambda: mesh.world.seen.holds(routes("table", "b")))
    assert mesh.world.seen.waiting == [{"table": frozenset({"b"})}, {}]
    assert await mesh.envoy.get(mesh.port) == 200


async def test_ordering_renaming_a_cluster_under_load_fails_no_request(mesh: Mesh) -> None:
    statuses: Counter[int] = Counter()
    done = asyncio.Event()

    async def load() -> None:
        while not done.is_set():
            statuses[await mesh.envoy.get(mesh.port)] += 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        for name in ("b", "c", "d", "a"):
            mesh.publish(CLUSTER, cluster(name))
            mesh.publish(ENDPOINTS, endpoints(name, mesh.upstream))
            mesh.publish(ROUTES, routes("table", name))
            await until(partial(mesh.world.seen.holds, routes("table", name)))
            await mesh.hosts(name, 1)
        await until(lambda: len(mesh.world.sent.removals(CLUSTER)) == 4)
        done.set()
    assert set(statuses) == {200}
    order = [(ack[0], ack[1], bool(ack[2])) for ack in mesh.world.seen.acks]
    assert order.index((ROUTES, "table", True)) < order.index((CLUSTER, "a", False))


async def test_ordering_changed_clusters_get_their_endpoints_again_and_warm_at_once(
    mesh: Mesh,
) -> None:
    names = [f"c{number}" for number in range(50)]
    mesh.publish(ENDPOINTS, *(endpoints(name, mesh.upstream) for name in ("a", *names)))
    mesh.publish(CLUSTER, cluster("a"), *map(cluster, names))
    await until(lambda: mesh.world.seen.holds(cluster("c49")))
    changed = [cluster(name, lb_policy="LEAST_REQUEST") for name in ("a", *names)]
    mesh.publish(CLUSTER, *changed)
    # Without the endpoints Envoy would keep them warming for 15 s.
    await until(lambda: mesh.world.seen.holds(*changed), within_s=5)
    assert await mesh.envoy.get(mesh.port) == 200


async def test_ordering_a_cluster_that_warms_across_a_reconnect_is_answered(mesh: Mesh) -> None:
    mesh.world.hub.withhold(NODE, ENDPOINTS, frozenset({"w"}))
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("w", mesh.upstream))
    mesh.publish(CLUSTER, cluster("a"), cluster("w"))
    await until(lambda: mesh.world.sent.count(cluster("w")) == 1)
    await until(lambda: (ENDPOINTS, "w") in _asked(mesh))
    assert mesh.world.sent.count(endpoints("w", mesh.upstream)) == 0
    await mesh.server.stop()
    mesh.world.hub.withhold(NODE, ENDPOINTS, frozenset())
    await mesh.restart(mesh.world)
    await mesh.hosts("w", 1)
    assert await mesh.envoy.get(mesh.port) == 200


# Over SotW nobody can be told that there are no endpoints: Envoy gives up by itself, after 15 s.
@pytest.mark.parametrize("mesh", [Variant.DELTA], indirect=True, ids=["delta"])
async def test_ordering_a_cluster_that_warms_is_dropped_by_a_server_that_does_not_know_it(
    mesh: Mesh,
) -> None:
    mesh.world.hub.withhold(NODE, ENDPOINTS, frozenset({"w"}))
    mesh.publish(CLUSTER, cluster("a"), cluster("w"))
    await until(lambda: (ENDPOINTS, "w") in _asked(mesh))
    await mesh.server.stop()
    again = RecordedHub()
    again.publish(NODE, CLUSTER, cluster("a"))
    again.publish(NODE, ENDPOINTS, endpoints("a", mesh.upstream))
    again.publish(NODE, LISTENER, listener("web", mesh.port, "table"))
    again.publish(NODE, ROUTES, routes("table", "a"))
    await mesh.restart(again)
    # Envoy asks for clusters only once the endpoints of the one that waits were answered.
    await until(lambda: any(type_url == CLUSTER for type_url, _ in again.seen.claims))
    await mesh.hosts("w", -1)
    assert await mesh.envoy.get(mesh.port) == 200


async def test_ordering_a_changed_cluster_that_warms_across_a_reconnect_is_answered(
    mesh: Mesh,
) -> None:
    # Envoy claims the endpoints that it has, and does not say that a cluster waits for them.
    mesh.world.hub.withhold(NODE, ENDPOINTS, frozenset({"a"}))
    mesh.publish(CLUSTER, cluster("a", lb_policy="LEAST_REQUEST"))

    async def warming(count: int) -> bool:
        return await mesh.envoy.stat("cluster_manager.warming_clusters") == count

    await until(partial(warming, 1))
    await mesh.server.stop()
    mesh.world.hub.withhold(NODE, ENDPOINTS, frozenset())
    await mesh.restart(mesh.world)
    # Long before Envoy gives up by itself, after 15 s.
    await until(partial(warming, 0), within_s=5)
    assert await mesh.envoy.get(mesh.port) == 200


def _asked(mesh: Mesh) -> set[tuple[str, str]]:
    return {
        (type_url, name)
        for connection in mesh.world.hub.connections
        for type_url, names in connection.stream.asked.items()
        for name in names
    }


def test_the_gate_is_longer_than_a_proxy_waits_for_its_first_endpoints() -> None:
    gateway = mesh_ir.gateway_of(mesh_ir.mesh())
    made = bootstrap(gateway, zone="eu-a", xds=("127.0.0.1", 1), admin=("127.0.0.1", 0))
    dynamic = made["dynamic_resources"]
    sources = [dynamic["lds_config"], dynamic["cds_config"], ADS]
    waits_s = [float(one["initial_fetch_timeout"].removesuffix("s")) for one in sources]
    in_clusters = ads().initial_fetch_timeout
    assert in_clusters is not None
    assert max(*waits_s, in_clusters.total_seconds()) <= limits.GATE_S
