"""Make before break on one ADS stream, with a client that has everything."""

import pytest

from headrace import limits
from headrace_xds.stream import AdsStream
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.fakes.ads_conversation import Conversation, contents
from tests.fakes.ads_model import plain
from tests.fakes.ads_resources import cluster, endpoints, routes

A1, A2 = endpoints("a", 1), endpoints("a", 2)
B1 = endpoints("b", 1)


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


@pytest.fixture
def full(talk: Conversation) -> Conversation:
    talk.publish(CLUSTER, cluster("a"))
    talk.publish(ENDPOINTS, A1)
    talk.publish(LISTENER, plain(LISTENER, "l", b"1"))
    talk.publish(ROUTES, routes("r", "a"))
    (clusters,) = talk.ask(CLUSTER)
    (members,) = talk.ask(ENDPOINTS, "a")
    talk.ack(members)
    talk.ack(clusters)
    talk.ack(talk.ask(LISTENER)[0])
    talk.ack(talk.ask(ROUTES, "r")[0])
    assert talk.take() == []
    return talk


def test_endpoints_do_not_wait_for_clusters(full: Conversation) -> None:
    changed = cluster("a", lb_policy="RANDOM")
    responses = full.publish(CLUSTER, changed)
    assert [response.type_url for response in responses] == [CLUSTER, ENDPOINTS]
    assert responses[1].resources == (A1,)


def test_routes_wait_for_the_clusters_to_be_acknowledged(full: Conversation) -> None:
    (clusters,) = full.publish(CLUSTER, cluster("a"), cluster("b"))
    assert full.publish(ROUTES, routes("r", "b")) == []
    assert full.publish(LISTENER, plain(LISTENER, "l", b"2")) == []
    late = full.ack(clusters)
    assert [response.type_url for response in late] == [LISTENER, ROUTES]


def test_routes_wait_for_endpoints_that_are_new_but_not_for_changed_weights(
    full: Conversation,
) -> None:
    full.publish(ENDPOINTS, A2, B1)
    (table,) = full.publish(ROUTES, routes("r", "a", request_headers_to_remove=["x"]))
    assert table.type_url == ROUTES


def test_routes_go_after_gate_s_though_clusters_are_not_acknowledged(
    full: Conversation,
) -> None:
    full.publish(CLUSTER, cluster("a"), cluster("b"))
    full.publish(ROUTES, routes("r", "b"))
    assert full.stream.deadline_s(full.now_s) == full.now_s + limits.GATE_S
    full.now_s += limits.GATE_S
    assert [response.type_url for response in full.take()] == [ROUTES]
    assert full.stream.deadline_s(full.now_s) is None


def test_a_cluster_goes_only_after_the_routes_that_dropped_it(full: Conversation) -> None:
    full.publish(ENDPOINTS, A1, B1)
    (clusters,) = full.publish(CLUSTER, cluster("b"))
    assert contents([clusters]) == [({"b"}, set())]
    full.publish(ROUTES, routes("r", "b"))
    (table,) = full.ack(clusters)
    assert table.type_url == ROUTES
    (removal,) = full.ack(table)
    assert contents([removal]) == [(set(), {"a"})]


def test_a_cluster_stays_while_refused_routes_leave_the_old_ones_in_effect(
    full: Conversation,
) -> None:
    (clusters,) = full.publish(CLUSTER, cluster("b"))
    full.publish(ROUTES, routes("r", "b"))
    (table,) = full.ack(clusters)
    assert full.nack(table) == []
    full.now_s += 2 * limits.GATE_S
    assert full.take() == []


def test_a_cluster_stays_while_a_publication_of_routes_lags_behind(
    full: Conversation,
) -> None:
    assert full.publish(CLUSTER) == []
    full.now_s += 2 * limits.GATE_S
    assert full.take() == []


def test_a_cluster_that_no_route_names_waits_for_listeners_under_way(
    full: Conversation,
) -> None:
    (added,) = full.publish(CLUSTER, cluster("a"), cluster("b"))
    full.ack(added)
    (changed,) = full.publish(LISTENER, plain(LISTENER, "l", b"2"))
    assert full.publish(CLUSTER, cluster("a")) == []
    assert contents(full.ack(changed)) == [(set(), {"b"})]


def test_routes_to_a_cluster_the_client_lacks_are_held_and_named(
    full: Conversation,
) -> None:
    assert full.publish(ROUTES, routes("r", "missing")) == []
    assert full.stream.held_back == {"r": frozenset({"missing"})}


def test_routes_to_a_cluster_that_was_refused_are_held(full: Conversation) -> None:
    (clusters,) = full.publish(CLUSTER, cluster("a"), cluster("b"))
    full.publish(ROUTES, routes("r", "b"))
    assert full.nack(clusters) == []
    assert full.stream.held_back == {"r": frozenset({"b"})}


def test_routes_are_held_back_no_more_once_they_are_as_the_client_has_them(
    full: Conversation,
) -> None:
    full.publish(ROUTES, routes("r", "missing"))
    assert full.publish(ROUTES, routes("r", "a")) == []
    assert full.stream.held_back == {}


def test_endpoints_of_a_live_cluster_are_never_removed(full: Conversation) -> None:
    assert full.publish(ENDPOINTS) == []


def test_after_a_reconnect_routes_do_not_overtake_the_clusters(
    full: Conversation,
) -> None:
    full.stream = AdsStream(group_for=lambda _: full.group)
    members = full.ask(ENDPOINTS, "a", claims={"a": "old"})
    assert contents(members) == [({"a"}, set())]
    assert full.ask(ROUTES, "r", claims={"r": "old"}) == []
    full.ack(members[0])
    late = full.ask(CLUSTER, claims={"a": cluster("a").version})
    assert [response.type_url for response in late] == [ROUTES]


def test_after_a_reconnect_endpoints_are_believed_once_clusters_are_asked_for(
    full: Conversation,
) -> None:
    full.stream = AdsStream(group_for=lambda _: full.group)
    assert full.ask(ENDPOINTS, "a", claims={"a": A1.version}) == []
    assert full.stream.deadline_s(full.now_s) == full.now_s + limits.CLAIM_S
    full.ask(CLUSTER, claims={"a": cluster("a").version})
    full.now_s += limits.CLAIM_S
    assert full.take() == []


def test_after_a_reconnect_endpoints_go_to_who_asks_for_no_clusters_as_one_of_them_warms(
    full: Conversation,
) -> None:
    full.stream = AdsStream(group_for=lambda _: full.group)
    assert full.ask(ENDPOINTS, "a", claims={"a": A1.version}) == []
    full.now_s += limits.CLAIM_S
    assert contents(full.take()) == [({"a"}, set())]
    assert full.take() == []


def test_after_a_reconnect_clusters_go_only_once_the_routes_are_known(
    full: Conversation,
) -> None:
    full.stream = AdsStream(group_for=lambda _: full.group)
    claims = {"a": cluster("a").version, "old": "v"}
    assert full.ask(CLUSTER, claims=claims) == []
    (table,) = full.ask(ROUTES, "r", claims={"r": "old"})
    assert contents(full.ack(table)) == [(set(), {"old"})]
