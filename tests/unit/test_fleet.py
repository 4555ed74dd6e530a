"""Who acknowledged what."""

import pytest

from headrace_xds.fleet import PENDING_SHOWN, Fleet, SyncState
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, Resource, resource

ENVOY = "gateway/eu"


def clusters(**versions: str) -> dict[str, Resource]:
    return {name: resource(CLUSTER, name, body.encode()) for name, body in versions.items()}


def fleet(**versions: str) -> Fleet:
    made = Fleet()
    made.published(ENVOY, CLUSTER, clusters(**versions))
    made.connected(1, ENVOY, ENVOY, "1.40", at_s=0)
    return made


def ack(made: Fleet, type_url: str = CLUSTER, **versions: str) -> None:
    for name, item in clusters(**versions).items():
        made.acked(ENVOY, type_url, {name: item.version}, at_s=1)


def state(made: Fleet, type_url: str = CLUSTER) -> SyncState:
    return made.status(made.proxies[ENVOY], type_url).state


def test_nothing_is_sent_before_the_first_acknowledgement() -> None:
    assert state(fleet(a="1")) is SyncState.NOT_SENT


def test_a_proxy_is_synced_once_it_acknowledged_what_is_published() -> None:
    made = fleet(a="1")
    ack(made, a="1")
    assert state(made) is SyncState.SYNCED
    assert made.in_effect(made.proxies[ENVOY])


def test_a_change_makes_a_proxy_stale_until_it_acknowledges_it() -> None:
    made = fleet(a="1")
    ack(made, a="1")
    made.published(ENVOY, CLUSTER, clusters(a="2"))
    assert state(made) is SyncState.STALE
    assert made.status(made.proxies[ENVOY], CLUSTER).pending == ("a",)
    ack(made, a="2")
    assert state(made) is SyncState.SYNCED


def test_a_refusal_shows_its_text_until_another_version_is_published() -> None:
    made = fleet(a="1")
    made.nacked(ENVOY, CLUSTER, {"a": clusters(a="1")["a"].version}, "no such filter", at_s=1)
    status = made.status(made.proxies[ENVOY], CLUSTER)
    assert status.state is SyncState.NACK
    assert status.rejected["a"].message == "no such filter"
    made.published(ENVOY, CLUSTER, clusters(a="2"))
    assert state(made) is not SyncState.NACK


def test_what_a_proxy_claims_counts_as_acknowledged() -> None:
    made = fleet(a="1")
    made.claimed(ENVOY, CLUSTER, {n: item.version for n, item in clusters(a="1").items()})
    assert state(made) is SyncState.SYNCED


@pytest.mark.parametrize(
    ("type_url", "expected"),
    [(CLUSTER, SyncState.STALE), (ENDPOINTS, SyncState.SYNCED)],
    ids=["removals are waited for", "proxies drop endpoints in silence"],
)
def test_what_is_no_longer_published(type_url: str, expected: SyncState) -> None:
    made = fleet()
    made.published(ENVOY, type_url, clusters(a="1", b="1"))
    ack(made, type_url, a="1", b="1")
    made.published(ENVOY, type_url, clusters(a="1"))
    assert state(made, type_url) is expected


def test_a_removal_that_is_acknowledged_is_in_effect() -> None:
    made = fleet(a="1")
    ack(made, a="1", b="1")
    made.acked(ENVOY, CLUSTER, {"b": ""}, at_s=2)
    assert state(made) is SyncState.SYNCED


def test_a_proxy_leaves_the_fleet_with_its_last_stream() -> None:
    made = fleet()
    made.connected(2, ENVOY, ENVOY, "1.40", at_s=1)
    made.disconnected(1, ENVOY)
    assert ENVOY in made.proxies
    made.disconnected(2, ENVOY)
    assert made.proxies == {}


def test_pending_names_are_limited_and_counted() -> None:
    made = fleet(**{f"c{number}": "1" for number in range(PENDING_SHOWN + 5)})
    status = made.status(made.proxies[ENVOY], CLUSTER)
    assert (len(status.pending), status.published, status.acknowledged) == (PENDING_SHOWN, 25, 0)


def test_gateways_agree_once_each_has_what_is_published_or_nothing() -> None:
    made = fleet()
    made.published(ENVOY, ENDPOINTS, clusters(a="1"))
    assert not made.gateways_agree(ENDPOINTS, ["a"]), "it has not said what it has"
    made.claimed(ENVOY, ENDPOINTS, {})
    assert made.gateways_agree(ENDPOINTS, ["a"]), "it has none"
    ack(made, ENDPOINTS, a="1")
    made.published(ENVOY, ENDPOINTS, clusters(a="2"))
    assert not made.gateways_agree(ENDPOINTS, ["a"])
    ack(made, ENDPOINTS, a="2")
    assert made.gateways_agree(ENDPOINTS, ["a"])


def test_routes_that_are_held_back_are_kept_for_the_proxy() -> None:
    made = fleet()
    made.held_back(ENVOY, {"r": frozenset({"b"})})
    made.held_back("gateway/gone", {"r": frozenset({"b"})})
    assert made.proxies[ENVOY].held_back == {"r": frozenset({"b"})}
