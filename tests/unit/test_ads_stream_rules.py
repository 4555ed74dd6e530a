"""The rules R1 to R10 of one ADS stream, without a network."""

import pytest

from headrace import limits, names
from headrace_xds.messages import Acked, Claimed, Left, Nacked, NodeInfo, Rejection, Request
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, EXTENSION, LISTENER, ROUTES
from tests.fakes.ads_conversation import NODE, Conversation, contents
from tests.fakes.ads_model import plain
from tests.fakes.ads_resources import cluster, endpoints

ASSIGNMENT = names.ASSIGNMENT_TYPE_URL
A1, A2 = endpoints("a", 1), endpoints("a", 2)
B1 = endpoints("b", 1)


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(Request(type_url=CLUSTER), "INVALID_ARGUMENT", id="no-node"),
        pytest.param(
            Request(type_url=CLUSTER, node=NodeInfo("")), "INVALID_ARGUMENT", id="no-node-id"
        ),
        pytest.param(Request(type_url="", node=NODE), "INVALID_ARGUMENT", id="no-type"),
        pytest.param(
            Request(
                type_url=ENDPOINTS,
                node=NODE,
                subscribe=tuple(map(str, range(limits.SUBSCRIPTIONS_PER_STREAM + 1))),
            ),
            "RESOURCE_EXHAUSTED",
            id="subscriptions-per-stream",
        ),
    ],
)
def test_r1_a_request_that_makes_no_sense_ends_the_stream(
    talk: Conversation, request_: Request, status: str
) -> None:
    rejection = talk.stream.receive(request_)
    assert isinstance(rejection, Rejection)
    assert rejection.status == status


def test_types_per_stream_are_limited(talk: Conversation) -> None:
    for number in range(limits.TYPES_PER_STREAM):
        talk.ask(f"type/{number}", "x")
    rejection = talk.stream.receive(Request(type_url="type/more", subscribe=("x",)))
    assert isinstance(rejection, Rejection)
    assert rejection.status == "RESOURCE_EXHAUSTED"


def test_r3_a_refused_version_is_not_sent_again_even_when_it_comes_back(
    talk: Conversation,
) -> None:
    talk.ask(ENDPOINTS, "a")
    (first,) = talk.publish(ENDPOINTS, A1)
    talk.ack(first)
    (second,) = talk.publish(ENDPOINTS, A2)
    events = talk.say(Request(type_url=ENDPOINTS, nonce=second.nonce, error="bad"))
    assert events == (Nacked(ENDPOINTS, {"a": A2.version}, "bad"),)
    assert talk.take() == []
    assert talk.publish(ENDPOINTS, A1) == []
    assert talk.publish(ENDPOINTS, A2) == []


def test_r3_every_refused_version_of_a_name_is_remembered(talk: Conversation) -> None:
    talk.ask(ENDPOINTS, "a")
    talk.nack(talk.publish(ENDPOINTS, A1)[0])
    talk.nack(talk.publish(ENDPOINTS, A2)[0])
    assert talk.publish(ENDPOINTS, A1) == []


def test_r3_of_assignments_the_last_refusal_counts_as_membership_says_when_to_ask_again(
    talk: Conversation,
) -> None:
    first, second = (plain(ASSIGNMENT, "m@1", body) for body in (b"1", b"2"))
    talk.ask(ASSIGNMENT, "*")
    talk.nack(talk.publish(ASSIGNMENT, first)[0])
    talk.nack(talk.publish(ASSIGNMENT, second)[0])
    assert talk.take() == []
    (again,) = talk.publish(ASSIGNMENT, first)
    assert again.resources == (first,)


def test_r3_who_asks_again_for_what_it_refused_gets_the_version_before(
    talk: Conversation,
) -> None:
    talk.ask(ENDPOINTS, "a")
    talk.ack(talk.publish(ENDPOINTS, A1)[0])
    talk.nack(talk.publish(ENDPOINTS, A2)[0])
    (again,) = talk.ask(ENDPOINTS, "a")
    assert again.resources == (A1,)
    assert talk.ack(again) == []


def test_r3_who_never_had_a_good_version_is_told_that_there_is_none(talk: Conversation) -> None:
    talk.ask(ENDPOINTS, "a")
    talk.nack(talk.publish(ENDPOINTS, A2)[0])
    (again,) = talk.ask(ENDPOINTS, "a")
    assert (again.resources, again.removed) == ((), ("a",))
    assert talk.ack(again) == []


def test_nacks_per_stream_are_remembered_up_to_a_limit(
    talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NACKS_PER_STREAM", 1)
    talk.ask(ENDPOINTS, "a", "b")
    responses = talk.publish(ENDPOINTS, A1, B1)
    while responses:
        responses = talk.nack(responses[0])
    assert "bad=['b']" in repr(talk.stream)


@pytest.mark.parametrize("nonce", ["", "0", "999"])
def test_r4_a_subscription_counts_whatever_its_nonce_is(talk: Conversation, nonce: str) -> None:
    talk.ask(ENDPOINTS, "a")
    (first,) = talk.publish(ENDPOINTS, A1, B1)
    talk.say(Request(type_url=ENDPOINTS, nonce=nonce, subscribe=("b",)))
    assert contents(talk.ack(first)) == [({"b"}, set())]


def test_r6_a_name_that_is_asked_for_again_is_sent_again(talk: Conversation) -> None:
    talk.ask(ENDPOINTS, "a")
    talk.ack(talk.publish(ENDPOINTS, A1)[0])
    (again,) = talk.ask(ENDPOINTS, "a")
    assert again.resources == (A1,)


@pytest.mark.parametrize(
    ("type_url", "sent"),
    [(LISTENER, False), (ROUTES, False), (EXTENSION, True), (ASSIGNMENT, True)],
)
def test_r6_an_equal_claim_is_trusted_only_for_types_where_that_is_safe(
    talk: Conversation, type_url: str, *, sent: bool
) -> None:
    one = plain(type_url, "a", b"\x0a\x01a")
    talk.publish(type_url, one)
    assert bool(talk.ask(type_url, "*", "a", claims={"a": one.version})) is sent


def test_r7_claims_of_what_is_gone_are_answered_with_a_removal(talk: Conversation) -> None:
    talk.publish(LISTENER, plain(LISTENER, "a", b"1"))
    (response,) = talk.ask(LISTENER, claims={"gone": "v"})
    assert contents([response]) == [({"a"}, {"gone"})]


def test_r9_absence_is_told_once_and_the_subscription_stays(talk: Conversation) -> None:
    talk.publish(ENDPOINTS)
    (response,) = talk.ask(ENDPOINTS, "a")
    assert response.removed == ("a",)
    assert talk.ack(response) == []
    (appeared,) = talk.publish(ENDPOINTS, A1)
    assert appeared.resources == (A1,)


def test_r9_an_extension_config_is_never_removed(talk: Conversation) -> None:
    one = plain(EXTENSION, "e", b"1")
    talk.ask(EXTENSION, "e")
    talk.ack(talk.publish(EXTENSION, one)[0])
    assert talk.publish(EXTENSION) == []


@pytest.mark.parametrize("type_url", [ENDPOINTS, ROUTES, EXTENSION, ASSIGNMENT, "type/unknown"])
def test_r10_an_empty_subscription_to_other_types_means_nothing(
    talk: Conversation, type_url: str
) -> None:
    if type_url != "type/unknown":
        talk.publish(type_url, plain(type_url, "a", b"1"))
    assert talk.ask(type_url) == []


@pytest.mark.parametrize("type_url", [CLUSTER, LISTENER])
def test_r10_an_empty_first_subscription_to_the_old_types_means_all(
    talk: Conversation, type_url: str
) -> None:
    talk.publish(type_url, cluster("a") if type_url == CLUSTER else plain(type_url, "a", b"1"))
    assert contents(talk.ask(type_url)) == [({"a"}, set())]


def test_r10_once_a_name_was_asked_for_an_empty_subscription_means_nothing(
    talk: Conversation,
) -> None:
    talk.publish(LISTENER, plain(LISTENER, "a", b"1"), plain(LISTENER, "b", b"1"))
    (response,) = talk.ask(LISTENER, "a")
    assert contents([response]) == [({"a"}, set())]
    talk.ack(response)
    assert talk.ask(LISTENER) == []


@pytest.mark.parametrize(("exists", "resources"), [(True, {"a"}), (False, set())])
def test_r10_a_name_dropped_under_a_wildcard_is_answered(
    talk: Conversation, *, exists: bool, resources: set[str]
) -> None:
    kept = [plain(LISTENER, "a", b"1")] if exists else []
    talk.publish(LISTENER, *kept)
    for response in talk.ask(LISTENER, "*", "a"):
        talk.ack(response)
    (answer,) = talk.ask(LISTENER, without=("a",))
    assert contents([answer]) == [(resources, set() if exists else {"a"})]


def test_leaving_the_wildcard_is_an_event_and_silences_the_type(talk: Conversation) -> None:
    talk.publish(ASSIGNMENT, plain(ASSIGNMENT, "m@1", b"1"))
    (response,) = talk.ask(ASSIGNMENT, "*")
    assert talk.say(Request(type_url=ASSIGNMENT, unsubscribe=("*",))) == (Left(ASSIGNMENT),)
    # What was under way is still answered, and heard.
    events = talk.say(Request(type_url=ASSIGNMENT, nonce=response.nonce))
    assert [type(event) for event in events] == [Acked]
    assert talk.publish(ASSIGNMENT) == []


def test_a_node_that_comes_back_while_it_leaves_says_so_on_its_first_request(
    talk: Conversation,
) -> None:
    first = Request(
        type_url=ASSIGNMENT, unsubscribe=("*",), initial_versions={"m@1": "v"}, node=NODE
    )
    assert talk.say(first) == (Claimed(ASSIGNMENT, {"m@1": "v"}), Left(ASSIGNMENT))
    assert talk.publish(ASSIGNMENT, plain(ASSIGNMENT, "m@1", b"1")) == []


def test_a_change_between_leaving_and_coming_back_is_not_missed(talk: Conversation) -> None:
    talk.publish(LISTENER, plain(LISTENER, "l", b"1"))
    (under_way,) = talk.ask(LISTENER, "*")
    talk.ask(LISTENER, without=("*",))
    assert talk.publish(LISTENER) == []
    assert talk.ask(LISTENER, "*") == []
    assert contents(talk.ack(under_way)) == [(set(), {"l"})]


def test_nothing_is_said_about_a_type_before_it_is_published(talk: Conversation) -> None:
    assert talk.ask(ENDPOINTS, "a") == []
    assert contents(talk.publish(ENDPOINTS)) == [(set(), {"a"})]


def test_a_withheld_name_is_not_answered_until_it_is_released(talk: Conversation) -> None:
    talk.publish(ENDPOINTS, B1)
    talk.withhold(ENDPOINTS, "a")
    assert contents(talk.ask(ENDPOINTS, "a", "b")) == [({"b"}, set())]
    assert talk.publish(ENDPOINTS, A1, B1) == []
    talk.say(Request(type_url=ENDPOINTS, nonce="1"))
    assert contents(talk.withhold(ENDPOINTS)) == [({"a"}, set())]


def test_changes_coalesce_while_a_response_is_unanswered(talk: Conversation) -> None:
    talk.ask(ENDPOINTS, "a")
    (first,) = talk.publish(ENDPOINTS, A1)
    for port in range(2, 20):
        assert talk.publish(ENDPOINTS, endpoints("a", port)) == []
    (second,) = talk.ack(first)
    assert second.resources == (endpoints("a", 19),)
    assert talk.ack(second) == []


def test_a_change_that_was_undone_in_the_meantime_is_not_sent(talk: Conversation) -> None:
    talk.ask(ENDPOINTS, "a")
    (first,) = talk.publish(ENDPOINTS, A1)
    talk.publish(ENDPOINTS, A2)
    talk.publish(ENDPOINTS, A1)
    assert talk.ack(first) == []


def test_response_resource_bytes_split_a_large_set(talk: Conversation) -> None:
    body = b"x" * (limits.RESPONSE_RESOURCE_BYTES // 4)
    talk.publish(LISTENER, *(plain(LISTENER, f"l{number}", body) for number in range(10)))
    responses = talk.ask(LISTENER, "*")
    sizes = []
    while responses:
        (response,) = responses
        sizes.append(len(response.resources))
        responses = talk.ack(response)
    assert sizes == [4, 4, 2]


def test_a_resource_larger_than_a_response_is_still_sent(talk: Conversation) -> None:
    body = b"x" * (limits.RESPONSE_RESOURCE_BYTES + 1)
    talk.publish(LISTENER, plain(LISTENER, "l", body))
    assert contents(talk.ask(LISTENER, "*")) == [({"l"}, set())]
