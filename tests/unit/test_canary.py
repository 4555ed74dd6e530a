"""A configuration goes to the canary proxy first; the others wait for what it says."""

import logging

import pytest

from headrace import limits
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, ROUTES, Resource
from tests.fakes.ads_resources import cluster, endpoints, routes
from tests.fakes.publishing import Proxy, Publishing

EU, US = "gateway/eu", "gateway/us"
A, B = cluster("a"), cluster("b")
OLD, NEW, NEWER = (routes("models/x", name) for name in ("a", "b", "a-b"))
OTHER, OTHER_NEW = routes("models/y", "a"), routes("models/y", "b")
AB = cluster("a-b")
ALL = (CLUSTER, ROUTES)


class World(Publishing):
    """Two gateways with the same resources; the first is the canary, and is silent at will."""

    def __init__(self) -> None:
        super().__init__(canary=EU)
        self.offer(A, B, OLD, OTHER)
        self.canary = Proxy(self, EU, *ALL)
        self.other = Proxy(self, US, *ALL, ENDPOINTS)
        assert self.other.version(OLD) == OLD.version

    def offer(self, *resources: Resource) -> None:
        by_type: dict[str, dict[str, Resource]] = {}
        for found in resources:
            by_type.setdefault(found.type_url, {})[found.name] = found
        self.configure({EU: by_type, US: by_type})


@pytest.fixture
def world() -> World:
    return World()


def test_the_others_are_served_once_the_canary_has_taken_everything(world: World) -> None:
    world.canary.silent = True
    world.offer(A, B, NEW, OTHER)
    assert world.publisher.canary.is_waiting
    assert world.other.version(NEW) == OLD.version
    world.canary.silent = False
    world.settle()
    assert not world.publisher.canary.is_waiting
    assert world.other.version(NEW) == NEW.version


def test_what_the_canary_refuses_reaches_nobody_and_the_rest_does(world: World) -> None:
    world.canary.refuses.add(NEW.key)
    # Another build, which does not share the quarantine of the canary's.
    third = Proxy(world, f"{US}/3", *ALL, build="1.41.0")
    world.offer(A, B, NEW, OTHER_NEW)
    assert NEW not in world.other.sent + third.sent
    assert world.other.version(OTHER_NEW) == third.version(OTHER_NEW) == OTHER_NEW.version
    world.offer(A, B, NEW, OTHER_NEW)
    assert NEW not in world.other.sent + third.sent
    world.offer(A, B, AB, NEWER, OTHER_NEW)
    assert world.other.version(NEW) == third.version(NEW) == NEWER.version


def test_endpoints_do_not_wait(world: World) -> None:
    world.canary.silent = True
    found = endpoints("a", 1)
    world.offer(A, B, NEW, OTHER, found)
    assert world.other.version(found) == found.version
    assert world.other.version(NEW) == OLD.version


def test_a_canary_that_is_away_keeps_the_others_waiting_until_it_is_back(world: World) -> None:
    world.canary.close()
    world.offer(A, B, NEW, OTHER)
    assert world.other.version(NEW) == OLD.version
    Proxy(world, EU, *ALL)
    assert world.other.version(NEW) == NEW.version


def test_a_newer_configuration_replaces_the_one_that_waits(world: World) -> None:
    world.canary.silent = True
    world.offer(A, B, NEW, OTHER)
    world.offer(A, B, AB, NEWER, OTHER)
    world.canary.silent = False
    world.settle()
    assert world.other.version(NEW) == NEWER.version
    assert NEW not in world.other.sent


def test_an_operator_lets_the_others_go_without_the_canary(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert not world.publisher.release_canary()
    world.canary.silent = True
    world.offer(A, B, NEW, OTHER)
    world.publisher.advance(now_s=world.now_s + limits.CANARY_S - 0.1)
    assert caplog.messages == []
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        world.publisher.advance(now_s=world.now_s + limits.CANARY_S)
    assert len([text for text in caplog.messages if "headrace canary release" in text]) == 1
    assert world.publisher.release_canary()
    world.settle()
    assert world.other.version(NEW) == NEW.version


def test_clusters_that_the_waiting_still_use_are_in_use(world: World) -> None:
    world.canary.silent = True
    world.offer(B, NEW, OTHER_NEW)
    assert world.publisher.clusters_in_use() == {"a"}
    world.canary.silent = False
    world.settle()
    assert world.publisher.clusters_in_use() == frozenset()
    assert world.other.version(A) is None


def test_after_a_restart_only_what_the_canary_never_took_waits(world: World) -> None:
    kept = world.kept[-1]
    again = Publishing(kept=kept, canary=EU)
    both = {CLUSTER: {"a": A, "b": B}, ROUTES: {"models/x": OLD, "models/y": OTHER}}
    again.configure({EU: both, US: both})
    assert Proxy(again, US, *ALL).version(OLD) == OLD.version
    new = {**both, ROUTES: {"models/x": NEW, "models/y": OTHER}}
    unproven = Publishing(kept=kept, canary=EU)
    unproven.configure({EU: new, US: new})
    waits = Proxy(unproven, US, *ALL)
    assert waits.version(NEW) is None
    Proxy(unproven, EU, *ALL)
    assert waits.version(NEW) == NEW.version


def test_one_replica_of_a_gateway_can_be_the_canary_of_the_others() -> None:
    world = Publishing(canary=f"{EU}/one")
    world.publish(EU, A, B, OLD)
    one, two = (Proxy(world, f"{EU}/{name}", *ALL) for name in ("one", "two"))
    assert two.version(OLD) == OLD.version
    one.silent = True
    world.publish(EU, A, B, NEW)
    assert two.version(NEW) == OLD.version
    one.silent = False
    world.settle()
    assert two.version(NEW) == NEW.version
