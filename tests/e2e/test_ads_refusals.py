"""What a real Envoy refuses, over either variant, is found, told once, and stops nothing else.

These are the rules R2, R3 and R14.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_xds.messages import Variant
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.fakes.ads_envoy import free_port
from tests.fakes.ads_mesh import Mesh, one_cluster
from tests.fakes.ads_recorder import until
from tests.fakes.ads_resources import cluster, endpoints, listener, routes

pytestmark = [pytest.mark.e2e]


@pytest.fixture(params=Variant, ids=lambda variant: variant.value)
async def mesh(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Mesh]:
    """Cluster ``a`` behind one listener, in effect."""
    async with one_cluster(tmp_path, request.param) as mesh:
        yield mesh


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
    # Over SotW every response repeats what is to stay.
    assert mesh.variant is Variant.SOTW or mesh.world.sent.count(cluster("good")) == 1


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
