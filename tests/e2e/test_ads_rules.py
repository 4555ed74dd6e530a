"""Every rule of the ADS stream engine against a real Envoy; the rule is cited in each test."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from headrace import limits
from headrace_xds.server import AdsServer, serve
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Resource
from tests.fakes.ads_envoy import AdsEnvoy, ads_envoy, free_port, upstream
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import cluster, endpoints, listener, routes

pytestmark = [pytest.mark.e2e]

NODE = "gateway/t"
VHDS = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
_ADS = {"ads": {}, "resource_api_version": "V3"}


@dataclass
class Mesh:
    """A hub, its server, one real Envoy and one upstream."""

    world: RecordedHub
    server: AdsServer
    envoy: AdsEnvoy
    upstream: int
    port: int

    def publish(self, type_url: str, *resources: Resource) -> None:
        self.world.publish(NODE, type_url, *resources)

    async def restart(self, world: RecordedHub) -> None:
        """Serve another hub on the same port, as a control server that was restarted does."""
        self.world = world
        self.server = await serve(world.hub, f"127.0.0.1:{self.server.port}")

    async def hosts(self, name: str, count: int) -> None:
        async def reached() -> bool:
            return await self.envoy.hosts(name) == count

        await until(reached, what=f"{name} has {count} hosts")

    async def status(self, status: int, *, port: int | None = None) -> None:
        async def reached() -> bool:
            return await self.envoy.get(port or self.port) == status

        await until(reached, what=f"status {status}")


@asynccontextmanager
async def running(folder: Path, world: RecordedHub, upstream_port: int) -> AsyncIterator[Mesh]:
    server = await serve(world.hub, "127.0.0.1:0")
    mesh = None
    try:
        async with ads_envoy(folder, ads_port=server.port, node_id=NODE) as envoy:
            mesh = Mesh(world, server, envoy, upstream_port, 0)
            yield mesh
    finally:
        await (mesh.server if mesh else server).stop()


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    """Cluster ``a`` behind one listener, in effect."""
    world, port = RecordedHub(), free_port()
    async with upstream() as upstream_port:
        world.publish(NODE, CLUSTER, cluster("a"))
        world.publish(NODE, ENDPOINTS, endpoints("a", upstream_port))
        world.publish(NODE, LISTENER, listener("web", port, "table"))
        world.publish(NODE, ROUTES, routes("table", "a"))
        async with running(tmp_path, world, upstream_port) as mesh:
            mesh.port = port
            await mesh.status(200)
            await until(lambda: world.seen.holds(routes("table", "a")))
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


async def test_r2_only_an_error_detail_makes_a_nack(mesh: Mesh) -> None:
    mesh.publish(CLUSTER, cluster("a"), cluster("bad", eds_cluster_config={}))
    await until(lambda: bool(mesh.world.seen.nacks))
    # Its next request of the type still names no version: it must count as an ACK.
    mesh.publish(CLUSTER, cluster("a", alt_stat_name="x"))
    await until(lambda: mesh.world.seen.holds(cluster("a", alt_stat_name="x")))
    assert len(mesh.world.seen.nacks) == 1


async def test_r3_a_bad_cluster_is_sent_once_and_its_good_sibling_lives(mesh: Mesh) -> None:
    bad = cluster("bad", eds_cluster_config={})
    mesh.publish(CLUSTER, cluster("a"), cluster("good"), bad)
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("good", mesh.upstream))
    await mesh.hosts("good", 1)
    await until(lambda: bool(mesh.world.seen.nacks))
    mesh.publish(CLUSTER, cluster("a"), cluster("good"), bad, cluster("later"))
    mesh.publish(ENDPOINTS, *(endpoints(name, mesh.upstream) for name in ("a", "good", "later")))
    await mesh.hosts("later", 1)
    ((type_url, names, message),) = mesh.world.seen.nacks
    assert (type_url, names) == (CLUSTER, ("bad",))
    assert "Missing config source" in message
    mesh.publish(CLUSTER, cluster("a"), cluster("good"), cluster("later"))
    mesh.publish(CLUSTER, cluster("a"), cluster("good"), bad)
    await mesh.hosts("later", -1)
    assert mesh.world.sent.count(bad) == 1
    assert mesh.world.sent.count(cluster("good")) == 1


async def test_r3_a_cluster_that_a_refusal_does_not_name_is_found_by_halving(mesh: Mesh) -> None:
    # Envoy throws on a negative duration before it knows whose it is, and takes no sibling.
    bad = cluster("c5", connect_timeout="-1s")
    names = [f"c{number}" for number in range(8)]
    mesh.publish(ENDPOINTS, *(endpoints(name, mesh.upstream) for name in ("a", *names)))
    mesh.publish(CLUSTER, cluster("a"), *(cluster(n) for n in names if n != "c5"), bad)
    await until(lambda: bool(mesh.world.seen.nacks))
    for name in names:
        await mesh.hosts(name, -1 if name == "c5" else 1)
    ((type_url, culprits, message),) = mesh.world.seen.nacks
    assert (type_url, culprits) == (CLUSTER, ("c5",))
    assert "duration" in message
    assert mesh.world.sent.count(bad) <= 4  # eight, four, two, one


async def test_r3_a_bad_listener_is_sent_once_and_its_good_sibling_lives(mesh: Mesh) -> None:
    port = free_port()
    bad = listener("bad", free_port(), "table", filter_chains=[])
    mesh.publish(
        LISTENER, listener("web", mesh.port, "table"), listener("good", port, "table"), bad
    )
    await mesh.status(200, port=port)
    await until(lambda: bool(mesh.world.seen.nacks))
    ((type_url, names, message),) = mesh.world.seen.nacks
    assert (type_url, names) == (LISTENER, ("bad",))
    assert "bad" in message
    assert mesh.world.sent.count(bad) == 1


async def test_r3_bad_endpoints_are_found_among_their_siblings_which_go_live(mesh: Mesh) -> None:
    names = [f"c{number}" for number in range(6)]
    mesh.publish(CLUSTER, cluster("a"), *map(cluster, names))
    first = [endpoints(name, mesh.upstream) for name in ("a", *names)]
    mesh.publish(ENDPOINTS, *first)
    await until(lambda: mesh.world.seen.holds(*first))
    bad = endpoints("c3", mesh.upstream, address="not-an-ip")
    good = [endpoints(name, mesh.upstream, 9) for name in ("a", *names) if name != "c3"]
    mesh.publish(ENDPOINTS, *good, bad)
    await until(lambda: mesh.world.seen.holds(*good) and bool(mesh.world.seen.nacks))
    for name in names:
        await mesh.hosts(name, 1 if name == "c3" else 2)
    ((type_url, culprits, message),) = mesh.world.seen.nacks
    assert (type_url, culprits) == (ENDPOINTS, ("c3",))
    assert "not-an-ip" in message
    sends = mesh.world.sent.count(bad)
    assert sends <= 4  # once with all, then halves of seven
    # Known as bad, it is never sent again on this stream.
    mesh.publish(ENDPOINTS, *first[:3], *first[5:], bad)
    await until(lambda: mesh.world.seen.holds(first[1]))
    assert mesh.world.sent.count(bad) == sends


async def test_r3_a_bad_route_table_is_found_and_its_good_sibling_goes_live(mesh: Mesh) -> None:
    port = free_port()
    twice = [{"name": str(number), "domains": ["*"]} for number in range(2)]
    bad = routes("other", "a", virtual_hosts=twice)
    good = routes("table", "a", request_headers_to_remove=["x-any"])
    mesh.publish(LISTENER, listener("web", mesh.port, "table"), listener("side", port, "other"))
    mesh.publish(ROUTES, routes("table", "a"), routes("other", "a"))
    await mesh.status(200, port=port)
    mesh.publish(ROUTES, good, bad)
    await until(lambda: mesh.world.seen.holds(good) and bool(mesh.world.seen.nacks))
    ((type_url, names, message),) = mesh.world.seen.nacks
    assert (type_url, names) == (ROUTES, ("other",))
    assert "domain" in message
    assert mesh.world.sent.count(bad) <= 2
    assert await mesh.envoy.get(port) == 200


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
    assert mesh.world.sent.removals(CLUSTER) == ["b"]
    assert await mesh.envoy.get(mesh.port) == 200


async def test_r8_after_a_restart_equal_clusters_and_listeners_are_not_sent(mesh: Mesh) -> None:
    await mesh.server.stop()
    assert await mesh.envoy.get(mesh.port) == 200
    again = RecordedHub()
    again.publish(NODE, CLUSTER, cluster("a"), cluster("new"))
    again.publish(NODE, ENDPOINTS, endpoints("a", mesh.upstream), endpoints("new", mesh.upstream))
    again.publish(NODE, LISTENER, listener("web", mesh.port, "table"))
    again.publish(NODE, ROUTES, routes("table", "a"))
    await mesh.restart(again)
    await mesh.hosts("new", 1)
    await until(lambda: again.seen.holds(endpoints("a", mesh.upstream), routes("table", "a")))
    assert again.sent.count(cluster("a")) == 0
    assert again.sent.count(listener("web", mesh.port, "table")) == 0
    assert (CLUSTER, {"a": cluster("a").version}) in again.seen.claims


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


async def test_r9_absent_endpoints_are_told_and_sent_once_they_exist(mesh: Mesh) -> None:
    mesh.publish(CLUSTER, cluster("a"), cluster("b"))
    await until(lambda: mesh.world.sent.removals(ENDPOINTS) == ["b"])
    await mesh.hosts("b", 0)
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b", mesh.upstream))
    await mesh.hosts("b", 1)


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


async def test_r14_an_unknown_extension_is_refused_by_name_and_the_old_one_serves(
    mesh: Mesh,
) -> None:
    unknown = {
        "filters": [
            {
                "name": "future",
                # A type that Envoy knows, but not as a network filter.
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ]
    }
    newer = listener("web", mesh.port, "table", filter_chains=[unknown])
    mesh.publish(LISTENER, newer)
    await until(lambda: bool(mesh.world.seen.nacks))
    ((type_url, names, message),) = mesh.world.seen.nacks
    assert (type_url, names) == (LISTENER, ("web",))
    assert "future" in message
    assert mesh.world.sent.count(newer) == 1
    assert await mesh.envoy.get(mesh.port) == 200


async def test_r15_routes_to_a_missing_cluster_wait_until_envoy_has_it(mesh: Mesh) -> None:
    mesh.publish(ROUTES, routes("table", "b"))
    (connection,) = mesh.world.hub.connections
    await until(lambda: connection.stream.dangling == {"table": frozenset({"b"})})
    assert await mesh.envoy.get(mesh.port) == 200
    mesh.publish(CLUSTER, cluster("a"), cluster("b"))
    mesh.publish(ENDPOINTS, endpoints("a", mesh.upstream), endpoints("b", mesh.upstream))
    await until(lambda: mesh.world.seen.holds(routes("table", "b")))
    assert connection.stream.dangling == {}
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


def _asked(mesh: Mesh) -> set[tuple[str, str]]:
    return {
        (type_url, name)
        for connection in mesh.world.hub.connections
        for type_url, names in connection.stream.asked.items()
        for name in names
    }


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


def test_the_gate_is_longer_than_a_proxy_waits_for_its_first_endpoints() -> None:
    assert limits.GATE_S >= 15  # initial_fetch_timeout of the tests and gateways
