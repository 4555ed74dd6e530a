"""What a real Envoy asks for it gets, across reconnects and restarts (R1, R4 to R10, R13)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from headrace import limits
from headrace_xds.messages import Variant
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Resource
from tests.fakes.ads_envoy import upstream
from tests.fakes.ads_mesh import NODE, Mesh, one_cluster, running
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import cluster, endpoints, listener, routes

VHDS = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
_ADS = {"ads": {}, "resource_api_version": "V3"}

pytestmark = [pytest.mark.e2e]
only_delta = pytest.mark.parametrize("mesh", [Variant.DELTA], indirect=True, ids=["delta"])
"""For what a client cannot say, or cannot be told, over SotW."""


@pytest.fixture(params=Variant, ids=lambda variant: variant.value)
async def mesh(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Mesh]:
    """Cluster ``a`` behind one listener, in effect."""
    async with one_cluster(tmp_path, request.param) as mesh:
        yield mesh


async def test_r1_a_node_that_is_sent_only_once_is_known_for_the_whole_stream(mesh: Mesh) -> None:
    (node,) = mesh.world.seen.nodes
    assert (node.id, node.cluster, node.region, node.zone) == (NODE, "test", "eu", "eu-1")
    assert node.build == "1.40.0"
    assert {type_url for type_url, _, _ in mesh.world.seen.acks} == {
        CLUSTER,
        ENDPOINTS,
        LISTENER,
        ROUTES,
    }


async def test_r4_subscriptions_that_cross_a_push_are_never_lost(mesh: Mesh) -> None:
    names = ["a"]
    for number in range(20):
        names.append(f"c{number}")
        mesh.publish(CLUSTER, *map(cluster, names))
        # Changes what Envoy has while it asks for what is new, so its nonces are stale.
        for weight in (1, 2):
            mesh.publish(
                ENDPOINTS,
                *(endpoints(name, mesh.upstream, weight=1 + number + weight) for name in names),
            )
            await asyncio.sleep(0)
    for name in names:
        await mesh.hosts(name, 1)


async def test_r5_no_nonce_is_used_twice_on_a_stream(mesh: Mesh) -> None:
    for weight in (2, 1, 2):
        mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream, weight=weight))
        sent = endpoints("a", mesh.upstream, weight=weight)
        await until(partial(mesh.world.seen.holds, sent))
        mesh.world.seen.acks.clear()
    nonces = Counter(response.nonce for response in mesh.world.sent.responses)
    assert set(nonces.values()) == {1}


async def test_r6_a_cluster_that_is_dropped_and_added_again_always_has_hosts(mesh: Mesh) -> None:
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b", mesh.upstream))
    for _ in range(20):
        mesh.publish(CLUSTER, cluster("a"), cluster("b"))
        await mesh.hosts("b", 1)
        mesh.publish(CLUSTER, cluster("a"))
        await mesh.hosts("b", -1)


async def test_r7_what_was_deleted_while_disconnected_is_deleted_on_return(mesh: Mesh) -> None:
    mesh.publish(CLUSTER, cluster("a"), cluster("b"))
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b", mesh.upstream))
    await mesh.hosts("b", 1)
    await mesh.server.stop()
    mesh.publish(CLUSTER, cluster("a"))
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream))
    await mesh.restart(mesh.world)
    await mesh.hosts("b", -1)
    # Over SotW the first response leaves it out, though nobody said that it was there.
    assert mesh.world.sent.removals(CLUSTER) == (["b"] if mesh.variant is Variant.DELTA else [])
    assert await mesh.envoy.get(mesh.port) == 200


@only_delta
async def test_r8_after_a_restart_nothing_is_sent_that_is_held_as_it_is(mesh: Mesh) -> None:
    await mesh.server.stop()
    assert await mesh.envoy.get(mesh.port) == 200
    again = RecordedHub()
    again.publish(NODE, CLUSTER, cluster("a"), cluster("new"))
    again.publish(NODE, ENDPOINTS, endpoints("a", mesh.upstream), endpoints("new", mesh.upstream))
    again.publish(NODE, LISTENER, listener("web", mesh.port, "table"))
    again.publish(NODE, ROUTES, routes("table", "a"))
    await mesh.restart(again)
    await mesh.hosts("new", 1)
    await until(lambda: again.seen.holds(endpoints("new", mesh.upstream)))
    await asyncio.sleep(limits.CLAIM_S)
    same = cluster("a"), endpoints("a", mesh.upstream), routes("table", "a")
    for found in (*same, listener("web", mesh.port, "table")):
        assert again.sent.count(found) == 0
    assert await mesh.envoy.get(mesh.port) == 200
    assert (CLUSTER, {"a": cluster("a").version}) in again.seen.claims


async def test_r8_four_thousand_edits_without_a_meaning_send_nothing(mesh: Mesh) -> None:
    before = len(mesh.world.sent.responses)
    for _ in range(1_000):
        mesh.publish(CLUSTER, cluster("a"))
        mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream))
        mesh.publish(LISTENER, listener("web", mesh.port, "table"))
        mesh.publish(ROUTES, routes("table", "a"))
    # What is sent after them has passed everything that they could have caused.
    mesh.publish(ROUTES, routes("table", "a", request_headers_to_remove=["x-any"]))
    await until(
        lambda: mesh.world.seen.holds(routes("table", "a", request_headers_to_remove=["x-any"]))
    )
    assert len(mesh.world.sent.responses) == before + 1


async def test_r9_endpoints_shrink_to_an_empty_assignment_and_not_to_a_removal(mesh: Mesh) -> None:
    mesh.publish(ENDPOINTS, endpoints("a"))
    await mesh.hosts("a", 0)
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream))
    await mesh.hosts("a", 1)
    # Even a publication that forgot a live cluster must not take its hosts away.
    mesh.publish(ENDPOINTS)
    mesh.publish(ROUTES, routes("table", "a", request_headers_to_remove=["x-any"]))
    await until(
        lambda: mesh.world.seen.holds(routes("table", "a", request_headers_to_remove=["x-any"]))
    )
    assert mesh.world.sent.removals(ENDPOINTS) == []
    assert await mesh.envoy.get(mesh.port) == 200


@only_delta
async def test_r9_absent_endpoints_are_told_and_sent_once_they_exist(mesh: Mesh) -> None:
    mesh.publish(CLUSTER, cluster("a"), cluster("b"))
    await until(lambda: mesh.world.sent.removals(ENDPOINTS) == ["b"])
    await mesh.hosts("b", 0)
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b", mesh.upstream))
    await mesh.hosts("b", 1)


@only_delta
async def test_r10_an_empty_subscription_is_everything_only_where_that_is_the_custom(
    mesh: Mesh,
) -> None:
    # Envoy opens CDS and LDS so, and got everything; it opens VHDS empty and must get nothing.
    vhds = {"config_source": _ADS}
    mesh.publish(ROUTES, routes("table", "a", vhds=vhds))
    await until(lambda: (VHDS, {}) in mesh.world.seen.claims)
    await until(lambda: mesh.world.seen.holds(routes("table", "a", vhds=vhds)))
    assert all(response.type_url != VHDS for response in mesh.world.sent.responses)
    assert await mesh.envoy.get(mesh.port) == 200


async def test_r13_a_resource_under_a_wrong_name_never_reaches_envoy(mesh: Mesh) -> None:
    sent = len(mesh.world.sent.responses)
    with pytest.raises(ValueError, match="carries the name 'a'"):
        mesh.world.hub.publish(NODE, CLUSTER, {"b": cluster("a")})
    renamed = Resource(CLUSTER, "b", cluster("a").version, cluster("a").body)
    with pytest.raises(ValueError, match="carries the name 'a'"):
        mesh.publish(CLUSTER, renamed)
    assert len(mesh.world.sent.responses) == sent
    assert await mesh.envoy.hosts("a") == 1


async def test_a_stream_is_refused_until_there_is_a_configuration(tmp_path: Path) -> None:
    world = RecordedHub()
    async with upstream() as upstream_port, running(tmp_path, world, upstream_port) as mesh:

        async def refused() -> bool:
            return await mesh.envoy.stat("cluster_manager.cds.update_failure") > 0

        await until(refused)
        assert world.seen.nodes == []
        mesh.publish(CLUSTER, cluster("a"))
        mesh.publish(ENDPOINTS, endpoints("a", upstream_port))
        await mesh.hosts("a", 1)
