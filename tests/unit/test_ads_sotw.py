"""What the state of the world adds to the rules of an ADS stream, without a network."""

import pytest

from headrace import limits, names
from headrace_xds.messages import Acked, Claimed, Nacked, Response, SotwRequest, Variant
from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    LISTENER,
    ROUTES,
    SCOPES,
    SECRET,
)
from headrace_xds.typepolicy import POLICIES, policy_of
from headrace_xds.wire import Encoder, version_info
from tests.fakes.ads_conversation import NODE, SotwConversation, contents
from tests.fakes.ads_model import plain
from tests.fakes.ads_resources import cluster, endpoints, routes

A1, A2, B1 = endpoints("a", 1), endpoints("a", 2), endpoints("b", 1)
CA, CB, CC = cluster("a"), cluster("b"), cluster("c")
CA2 = cluster("a", alt_stat_name="x")
WHOLE = (CLUSTER, LISTENER, SCOPES)
PARTIAL = tuple(type_url for type_url in POLICIES if type_url not in WHOLE)
UNNAMED = "a duration is negative"


@pytest.fixture
def talk() -> SotwConversation:
    return SotwConversation()


@pytest.fixture
def full(talk: SotwConversation) -> SotwConversation:
    """Clusters ``a`` and ``b``, a listener and routes to ``a``, all acknowledged."""
    talk.publish(CLUSTER, CA, CB)
    talk.publish(ENDPOINTS, A1, B1)
    talk.publish(LISTENER, plain(LISTENER, "l", b"1"))
    talk.publish(ROUTES, routes("r", "a"))
    (clusters,) = talk.want(CLUSTER)
    (members,) = talk.want(ENDPOINTS, "a", "b")
    talk.ack(members)
    talk.ack(clusters)
    talk.ack(talk.want(LISTENER)[0])
    talk.ack(talk.want(ROUTES, "r")[0])
    assert talk.take() == []
    return talk


def sent(responses: list[Response]) -> list[set[str]]:
    """Names in each response; all else that the client has of a whole type is deleted."""
    return [resources for resources, _ in contents(responses)]


def test_r11_a_change_of_one_cluster_repeats_the_others(full: SotwConversation) -> None:
    (response,) = [r for r in full.publish(CLUSTER, CA2, CB) if r.type_url == CLUSTER]
    assert set(response.resources) == {CA2, CB}


def test_r11_a_cluster_is_deleted_by_leaving_it_out(full: SotwConversation) -> None:
    (response,) = full.publish(CLUSTER, CA)
    assert response.resources == (CA,)
    assert full.ack(response) == []


@pytest.mark.parametrize("type_url", PARTIAL)
def test_r11_other_types_are_sent_in_part_and_never_deleted(type_url: str) -> None:
    talk = SotwConversation(only=type_url)
    one, other, changed = (plain(type_url, *it) for it in (("a", b"1"), ("b", b"1"), ("b", b"2")))
    talk.publish(type_url, one, other)
    (both,) = talk.want(type_url, "a", "b")
    assert sent([both]) == [{"a", "b"}]
    assert talk.ack(both) == []
    (response,) = talk.publish(type_url, one, changed)
    assert response.resources == (changed,)
    assert talk.ack(response) == []
    assert talk.publish(type_url, one) == []
    assert talk.publish(type_url, one, changed) == []


def test_r11_only_what_is_whole_deletes() -> None:
    whole = {type_url for type_url in POLICIES if policy_of(type_url, Variant.SOTW).whole}
    assert whole == set(WHOLE)
    removable = {type_url for type_url in POLICIES if policy_of(type_url, Variant.SOTW).removable}
    assert removable == whole


@pytest.mark.parametrize("type_url", [ENDPOINTS, ROUTES, SECRET, EXTENSION])
def test_r11_no_names_unsubscribe_from_a_type_without_a_wildcard(type_url: str) -> None:
    talk = SotwConversation(only=type_url)
    talk.publish(type_url, plain(type_url, "a", b"1"))
    (first,) = talk.want(type_url, "a")
    talk.ack(first)
    assert talk.want(type_url, nonce=first.nonce) == []
    assert talk.publish(type_url, plain(type_url, "a", b"2")) == []
    assert talk.want(type_url, "a", nonce=first.nonce)[0].resources[0].body == b"2"


@pytest.mark.parametrize("type_url", WHOLE)
def test_r10_no_names_mean_all_until_a_name_was_asked_for(type_url: str) -> None:
    talk = SotwConversation(only=type_url)
    talk.publish(type_url, plain(type_url, "a", b"1"), plain(type_url, "b", b"1"))
    (both,) = talk.want(type_url)
    assert sent([both]) == [{"a", "b"}]
    assert talk.ack(both) == []
    (one,) = talk.want(type_url, "a", nonce=both.nonce)
    assert sent([one]) == [{"a"}]
    assert talk.ack(one) == []
    assert talk.want(type_url, nonce=one.nonce) == []
    assert talk.publish(type_url, plain(type_url, "a", b"2")) == []


def test_r10_a_name_beside_the_wildcard_changes_nothing(talk: SotwConversation) -> None:
    talk.publish(CLUSTER, CA, CB)
    (both,) = talk.want(CLUSTER, "*")
    talk.ack(both)
    again = talk.want(CLUSTER, "*", "a", nonce=both.nonce)
    assert sent(again) == [{"a", "b"}]
    talk.ack(again[0])
    assert talk.want(CLUSTER, "*", nonce=again[0].nonce) == []
    assert sent(talk.publish(CLUSTER, CB)) == [{"b"}]


@pytest.mark.parametrize("nonce", ["0", "999"])
def test_r4_a_request_with_an_old_nonce_is_ignored(talk: SotwConversation, nonce: str) -> None:
    talk.publish(ENDPOINTS, A1, B1)
    (first,) = talk.want(ENDPOINTS, "a")
    assert talk.hear(SotwRequest(ENDPOINTS, nonce, ("a", "b"))) is None
    assert talk.hear(SotwRequest(ENDPOINTS, nonce, ("a",), error="no")) is None
    assert talk.take() == []
    talk.names[ENDPOINTS] = ("a", "b")
    assert sent(talk.ack(first)) == [{"b"}]


def test_r4_an_answer_from_before_a_later_response_is_ignored(talk: SotwConversation) -> None:
    talk.publish(ENDPOINTS, A1)
    (first,) = talk.want(ENDPOINTS, "a")
    talk.ack(first)
    (second,) = talk.publish(ENDPOINTS, A2)
    assert talk.ack(first) == []
    assert talk.publish(ENDPOINTS, A1) == [], "the second is still unanswered"
    assert talk.ack(second)[0].resources == (A1,)


def test_r4_a_subscription_without_a_nonce_counts(talk: SotwConversation) -> None:
    talk.publish(ENDPOINTS)
    assert talk.want(ENDPOINTS, "a") == []
    assert talk.want(ENDPOINTS, "a", "b") == []
    assert sent(talk.publish(ENDPOINTS, A1, B1)) == [{"a", "b"}]


def test_r2_only_an_error_detail_is_a_refusal(talk: SotwConversation) -> None:
    talk.publish(CLUSTER, CA)
    (first,) = talk.want(CLUSTER)
    # The version of the client is empty or old, and yet it is an acknowledgement.
    events = talk.hear(SotwRequest(CLUSTER, first.nonce, (), version=""))
    assert events == (Acked(CLUSTER, {"a": CA.version}),)


def test_r3_a_refused_cluster_is_left_out_and_the_version_before_stays(
    full: SotwConversation,
) -> None:
    (both, _) = full.publish(CLUSTER, CA2, CB, CC)
    error = "Error adding/updating cluster(s) a: no, c: no"
    events = full.hear(SotwRequest(CLUSTER, both.nonce, error=error))
    assert events is not None
    assert events[0] == Nacked(CLUSTER, {"a": CA2.version, "c": CC.version}, error)
    assert full.take() == []
    (later,) = full.publish(CLUSTER, CA2, CB, CC, cluster("d"))
    assert set(later.resources) == {CA, CB, cluster("d")}


def test_r3_a_cluster_that_a_refusal_does_not_name_is_found_and_nothing_else_is_deleted(
    full: SotwConversation,
) -> None:
    new = [cluster(f"c{number}") for number in range(4)]
    responses, refused = full.publish(CLUSTER, CA, CB, *new), 0
    while responses:
        (response,) = responses
        assert {CA, CB} <= set(response.resources)
        bad = new[2] in response.resources
        refused += bad
        responses = full.nack(response, UNNAMED) if bad else full.ack(response)
    assert refused == 3
    assert "bad=['c2']" in repr(full.stream)


def test_r3_refused_endpoints_are_found_by_halving(talk: SotwConversation) -> None:
    talk.publish(ENDPOINTS, A1, B1)
    (both,) = talk.want(ENDPOINTS, "a", "b")
    (first,) = talk.nack(both)
    assert sent([first]) == [{"a"}]
    (second,) = talk.nack(first)
    assert sent([second]) == [{"b"}]
    assert talk.ack(second) == []
    assert "bad=['a']" in repr(talk.stream)


def test_r6_a_name_that_comes_back_is_sent_again_and_one_that_stays_is_not(
    talk: SotwConversation,
) -> None:
    talk.publish(ENDPOINTS, A1, B1)
    (both,) = talk.want(ENDPOINTS, "a", "b")
    talk.ack(both)
    assert talk.want(ENDPOINTS, "a", "b", nonce=both.nonce) == []
    assert talk.want(ENDPOINTS, "a", nonce=both.nonce) == []
    assert sent(talk.want(ENDPOINTS, "a", "b", nonce=both.nonce)) == [{"b"}]


def test_a_changed_cluster_gets_its_endpoints_again_and_the_others_do_not(
    full: SotwConversation,
) -> None:
    clusters, members = full.publish(CLUSTER, CA2, CB)
    assert (clusters.type_url, members.type_url) == (CLUSTER, ENDPOINTS)
    assert members.resources == (A1,)


def test_a_cluster_stays_in_every_response_until_no_route_needs_it(
    full: SotwConversation,
) -> None:
    (clusters,) = full.publish(CLUSTER, CB, CC)
    assert set(clusters.resources) == {CA, CB, CC}
    full.publish(ROUTES, routes("r", "b"))
    (table,) = full.ack(clusters)
    (without,) = full.ack(table)
    assert set(without.resources) == {CB, CC}


@pytest.mark.parametrize("type_url", [CLUSTER, LISTENER])
def test_a_client_is_told_when_there_is_nothing_at_all(
    talk: SotwConversation, type_url: str
) -> None:
    assert talk.want(type_url) == []
    (nothing,) = talk.publish(type_url)
    assert contents([nothing]) == [(set(), set())]
    assert talk.ack(nothing) == []
    assert talk.publish(type_url) == []


def test_a_name_that_does_not_exist_is_told_by_its_absence(talk: SotwConversation) -> None:
    talk.publish(CLUSTER, CA)
    (only,) = talk.want(CLUSTER, "a", "missing")
    assert sent([only]) == [{"a"}]
    assert talk.ack(only) == []


def test_response_resource_bytes_never_split_what_must_be_whole(talk: SotwConversation) -> None:
    large = "x" * (limits.RESPONSE_RESOURCE_BYTES // 2)
    talk.publish(CLUSTER, *(cluster(name, alt_stat_name=large) for name in "abcdef"))
    assert sent(talk.want(CLUSTER)) == [set("abcdef")]


def test_a_client_that_comes_back_claims_nothing_and_is_sent_all(talk: SotwConversation) -> None:
    talk.publish(CLUSTER, CA)
    version = version_info([("a", CA.version)])
    events = talk.hear(SotwRequest(CLUSTER, names=(), version=version, node=NODE))
    assert events == (Claimed(CLUSTER, {}),)
    assert sent(talk.take()) == [{"a"}]


def test_what_a_returning_client_refused_goes_along_lest_it_deletes_its_own(
    talk: SotwConversation,
) -> None:
    talk.publish(CLUSTER, CA2, CB)
    (both,) = talk.want(CLUSTER, version="earlier")
    error = "Error adding/updating cluster(s) a: no"
    assert talk.nack(both, error) == []
    (again,) = talk.publish(CLUSTER, CA2, CB, CC)
    assert set(again.resources) == {CA2, CB, CC}
    assert talk.nack(again, error) == []
    (good,) = talk.publish(CLUSTER, CA, CB, CC)
    assert talk.ack(good) == []
    assert set(talk.publish(CLUSTER, CA2, CB, CC, cluster("d"))[0].resources) == {
        CA,
        CB,
        CC,
        cluster("d"),
    }


def test_what_a_new_client_refused_does_not_go_along(talk: SotwConversation) -> None:
    talk.publish(CLUSTER, CA, CB)
    (both,) = talk.want(CLUSTER)
    talk.nack(both, "Error adding/updating cluster(s) a: no")
    assert sent(talk.publish(CLUSTER, CA, CB, CC)) == [{"b", "c"}]


def test_a_returning_client_that_names_no_culprit_is_never_sent_a_part(
    talk: SotwConversation,
) -> None:
    talk.publish(CLUSTER, CA, CB)
    (both,) = talk.want(CLUSTER, version="earlier")
    events = talk.hear(SotwRequest(CLUSTER, both.nonce, error=UNNAMED))
    assert events == (Nacked(CLUSTER, {}, UNNAMED),)
    assert talk.take() == []
    (changed,) = talk.publish(CLUSTER, CA2, CB)
    assert set(changed.resources) == {CA2, CB}
    assert talk.ack(changed) == []


def test_a_sidecar_over_sotw_has_one_response_under_way() -> None:
    talk = SotwConversation()
    type_url = names.ASSIGNMENT_TYPE_URL
    talk.publish(type_url, plain(type_url, "a", b"1"), plain(type_url, "b", b"1"))
    (both,) = talk.want(type_url, "*")
    assert sent([both]) == [{"a", "b"}]
    assert talk.ack(both) == []


def test_equal_contents_are_encoded_once_whatever_was_left_out() -> None:
    encoder = Encoder()
    responses = [
        Response(CLUSTER, nonce, (CA,), removed, Variant.SOTW)
        for nonce, removed in (("1", ()), ("2", ("b",)))
    ]
    first, second = map(encoder.encode, responses)
    assert first[:-1] == second[:-1]
    assert "bodies=1 " in repr(encoder)


def test_a_version_is_a_hash_of_what_is_sent() -> None:
    assert version_info([("a", "1")]) == version_info([("a", "1")])
    assert version_info([("a", "1"), ("b", "2")]) != version_info([("a", "1"), ("b", "3")])
    assert version_info([("a", "1")]) != version_info([])
