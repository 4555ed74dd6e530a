"""What a proxy refused is held back from its build; the others of the configuration go live."""

from pathlib import Path

import pytest

from headrace import limits
from headrace_xds.publish import kept
from headrace_xds.publish.kept import Kept
from headrace_xds.publish.publisher import OTHER_BUILDS
from headrace_xds.publish.quarantine import Quarantine, Refusal
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, ROUTES, SECRET, resource
from tests.fakes.ads_resources import cluster, endpoints, routes
from tests.fakes.publishing import REASON, Proxy, Publishing

EU = "gateway/eu"
A, B = cluster("a"), cluster("b")
GOOD, BAD, MENDED = (routes("models/x", name) for name in ("a", "b", "a-b"))
AB = cluster("a-b")
OTHER = routes("models/y", "a")
ALL = (CLUSTER, ROUTES)


@pytest.fixture
def world() -> Publishing:
    made = Publishing()
    made.publish(EU, A, B, GOOD, OTHER)
    return made


def held(world: Publishing) -> list[tuple[str, str]]:
    return [(refusal.build, refusal.version) for refusal in world.publisher.quarantine]


def test_a_refused_version_stays_with_nobody_and_its_siblings_go_live(world: Publishing) -> None:
    proxy = Proxy(world, EU, *ALL, refuses=[BAD])
    newer = routes("models/y", "b")
    world.publish(EU, A, B, BAD, newer)
    assert (proxy.version(GOOD), proxy.version(newer)) == (GOOD.version, newer.version)
    assert held(world) == [("1.40.0", BAD.version)]
    (active,) = world.publisher.active()
    assert (active.wanted, active.served, active.group) == (BAD, GOOD, EU)
    assert (active.refusal.proxy, active.refusal.message) == (EU, REASON)


def test_a_new_proxy_and_one_that_restarted_are_given_the_last_good_version(
    world: Publishing,
) -> None:
    first = Proxy(world, EU, *ALL, refuses=[BAD])
    world.publish(EU, A, B, BAD, OTHER)
    first.close()
    again = Proxy(world, EU, *ALL)
    other = Proxy(world, f"{EU}/replica-2", *ALL)
    assert again.version(BAD) == other.version(BAD) == GOOD.version
    assert BAD not in again.sent + other.sent


def test_another_build_is_sent_what_the_first_refused(world: Publishing) -> None:
    Proxy(world, EU, *ALL, refuses=[BAD])
    newer = Proxy(world, f"{EU}/new", *ALL, build="1.41.0")
    world.publish(EU, A, B, BAD, OTHER)
    assert newer.version(BAD) == BAD.version


def test_the_same_bytes_are_held_back_in_every_group_of_the_build(world: Publishing) -> None:
    Proxy(world, EU, *ALL, refuses=[BAD])
    world.publish(EU, A, B, BAD, OTHER)
    us = Proxy(world, "gateway/us", *ALL)
    world.publish("gateway/us", A, B, BAD, OTHER)
    assert BAD not in us.sent
    assert us.version(OTHER) == OTHER.version


def test_who_took_a_version_before_another_refused_it_keeps_it(world: Publishing) -> None:
    taker = Proxy(world, EU, *ALL)
    refuser = Proxy(world, f"{EU}/second", *ALL, refuses=[BAD])
    world.publish(EU, A, B, BAD, OTHER)
    assert (taker.version(BAD), refuser.version(BAD)) == (BAD.version, GOOD.version)
    taker.connection.close()
    taker.connect()
    assert taker.version(BAD) == BAD.version
    assert Proxy(world, f"{EU}/third", *ALL).version(BAD) == GOOD.version
    world.publish(EU, A, B, AB, MENDED, OTHER)
    assert taker.version(BAD) == refuser.version(BAD) == MENDED.version


def test_mending_reaches_everybody_and_going_back_to_the_refused_version_nobody(
    world: Publishing,
) -> None:
    proxy = Proxy(world, EU, *ALL, refuses=[BAD])
    world.publish(EU, A, B, BAD, OTHER)
    world.publish(EU, A, B, AB, MENDED, OTHER)
    assert proxy.version(BAD) == MENDED.version
    assert list(world.publisher.active()) == []
    world.publish(EU, A, B, AB, BAD, OTHER)
    assert proxy.version(BAD) == MENDED.version
    assert proxy.sent.count(BAD) == 1
    assert Proxy(world, f"{EU}/2", *ALL).version(BAD) == MENDED.version


def test_what_was_refused_and_never_good_is_absent(world: Publishing) -> None:
    bad = routes("models/z", "a")
    Proxy(world, EU, *ALL, refuses=[bad])
    world.publish(EU, A, B, GOOD, OTHER, bad)
    other = Proxy(world, f"{EU}/2", *ALL)
    assert other.version(bad) is None
    assert other.version(GOOD) == GOOD.version
    (active,) = world.publisher.active()
    assert active.served is None


def test_refused_endpoints_are_found_by_halving_and_held(world: Publishing) -> None:
    good = [endpoints(name, 1) for name in ("a", "b", "c", "d")]
    bad = endpoints("c", 2)
    proxy = Proxy(world, EU, ENDPOINTS, refuses=[bad])
    world.publish(EU, *good)
    newer = [endpoints(name, 2) for name in ("a", "b", "d")]
    world.publish(EU, *newer, bad)
    assert [proxy.version(found) for found in newer] == [found.version for found in newer]
    assert Proxy(world, f"{EU}/2", ENDPOINTS).version(bad) == good[2].version


def test_a_cluster_stays_while_a_last_good_table_sends_to_it(world: Publishing) -> None:
    Proxy(world, EU, *ALL, refuses=[BAD])
    world.publish(EU, B, BAD, routes("models/y", "b"))
    assert world.publisher.clusters_in_use() == {"a"}
    other = Proxy(world, f"{EU}/2", *ALL)
    assert (other.version(GOOD), other.version(A)) == (GOOD.version, A.version)
    assert not world.fleet.behind(world.fleet.proxies[f"{EU}/2"], ROUTES) - {"models/x"}
    assert world.publisher.excused(f"{EU}/2", "1.40.0", CLUSTER) == {"a"}
    mended = routes("models/x", "b", internal_only_headers=["x"])
    world.publish(EU, B, mended, routes("models/y", "b"))
    assert world.publisher.clusters_in_use() == frozenset()
    assert other.version(A) is None


def test_an_operator_releases_what_is_held(world: Publishing) -> None:
    proxy = Proxy(world, EU, *ALL, refuses=[BAD])
    world.publish(EU, A, B, BAD, OTHER)
    proxy.refuses.clear()
    assert len(world.publisher.release(ROUTES, "models/x")) == 1
    world.settle()
    assert proxy.version(BAD) == BAD.version
    assert world.publisher.release(ROUTES, "models/x") == ()


def test_a_restart_sends_nothing_refused_and_serves_the_last_good(world: Publishing) -> None:
    Proxy(world, EU, *ALL, refuses=[BAD])
    world.publish(EU, A, B, BAD, OTHER)
    again = Publishing(kept=world.kept[-1])
    again.publish(EU, A, B, BAD, OTHER)
    new = Proxy(again, EU, *ALL)
    assert new.version(BAD) == GOOD.version
    assert again.publisher.kept() == world.kept[-1]
    again.publish(EU, A, B, AB, MENDED, OTHER)
    assert [good.version for good in again.kept[-1].goods] == [MENDED.version]


def test_a_secret_is_never_kept_on_disk() -> None:
    good, bad = resource(SECRET, "s", b"\x0a\x01s"), resource(SECRET, "s", b"\x0a\x01s\x12\x00")
    world = Publishing()
    world.publish(EU, good)
    proxy = Proxy(world, EU, SECRET, refuses=[bad])
    world.publish(EU, bad)
    assert proxy.version(bad) == good.version
    assert len(world.kept[-1].refusals) == 1
    assert world.kept[-1].goods == ()


def test_quarantined_versions_have_a_limit_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUARANTINED", 2)
    found = Quarantine(
        Refusal(
            build="b",
            type_url=ROUTES,
            name=name,
            version="v",
            proxy=EU,
            message=REASON,
            at_s=1.0,
        )
        for name in ("a", "b", "c", "c")
    )
    assert [refusal.name for refusal in found] == ["b", "c"]
    assert found.held("b", ROUTES).keys() == {"b", "c"}
    assert found.held("other", ROUTES) == {}


def test_builds_are_told_apart_up_to_a_limit(
    world: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BUILDS", 2)
    gone = Proxy(world, EU, *ALL, build="1")
    gone.close()
    proxies = [Proxy(world, f"{EU}/{n}", *ALL, build=str(n)) for n in range(2, 6)]
    assert [proxy.version(GOOD) for proxy in proxies] == [GOOD.version] * 4
    proxies[3].refuses.add(BAD.key)
    world.publish(EU, A, B, BAD, OTHER)
    assert held(world) == [(OTHER_BUILDS, BAD.version)]
    assert [p.version(BAD) for p in proxies[:2]] == [BAD.version] * 2


def test_a_gateway_that_nobody_knows_leaves_nothing_behind(world: Publishing) -> None:
    before = repr(world.publisher), repr(world.recorded.hub)
    for number in range(3):
        stranger = Proxy(world, f"gateway/stranger-{number}", *ALL)
        stranger.close()
    Proxy(world, "somebody", *ALL).close()
    assert (repr(world.publisher), repr(world.recorded.hub)) == before


def test_a_group_that_is_dropped_is_forgotten_with_its_last_proxy(world: Publishing) -> None:
    proxy = Proxy(world, EU, *ALL)
    world.publisher.drop_group(EU)
    assert proxy.version(GOOD) == GOOD.version
    proxy.close()
    assert "groups=0" in repr(world.publisher)
    assert "groups=0" in repr(world.recorded.hub)


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "quarantine.json"
    assert kept.load(path) == Kept()
    kept.save(path, Kept(proven="digest"))
    assert kept.load(path).proven == "digest"
    path.write_text("{")
    assert kept.load(path) == Kept()
    assert path.with_name("quarantine.json.damaged").read_text() == "{"
