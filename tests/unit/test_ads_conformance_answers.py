"""What any client of any variant may expect of answers that are late, refusals and returns."""

from headrace_xds.messages import Variant
from headrace_xds.translate.resources import (
    ENDPOINTS,
    SECRET,
)
from headrace_xds.typepolicy import policy_of
from tests.fakes.ads_peer import PromptPeer, bodies, made, some
from tests.fakes.ads_scenarios import every_type, types_that_name, types_that_open_empty


@every_type
def test_what_changes_before_an_answer_comes_together_after_it(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    (answer,) = peer.subscribe(type_url, "a", "b")
    for revision in range(2, 9):
        assert peer.publish(type_url, *some(type_url, a=revision, b=1)) == []
    (later,) = peer.ack(answer)
    assert peer.told(later, news="a", everything="ab")
    assert peer.ack(later) == []
    assert peer.bodies(type_url) == bodies(type_url, a=8, b=1)


@every_type
def test_a_subscription_under_way_of_a_response_is_not_lost(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    (answer,) = peer.subscribe(type_url, "a")
    # It has not read the answer, so that the nonce it names is an old one.
    assert peer.subscribe(type_url, "b") == []
    (later,) = peer.ack(answer)
    assert peer.told(later, news="b", everything="ab")
    assert peer.ack(later) == []
    assert peer.bodies(type_url) == bodies(type_url, a=1, b=1)


@every_type
def test_an_answer_to_an_earlier_response_is_not_one_to_the_latest(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1))
    (first,) = peer.subscribe(type_url, "a")
    peer.ack(first)
    (second,) = peer.publish(type_url, *some(type_url, a=2))
    assert peer.nack(first, "a") == []
    assert peer.world.seen.nacks == []
    assert peer.publish(type_url, *some(type_url, a=3)) == [], "the second is unanswered"
    (third,) = peer.ack(second)
    assert (third.nonce, third.names) == ("3", {"a"})


@every_type
def test_what_was_refused_is_not_sent_again_and_what_mends_it_is(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1))
    peer.settle(peer.subscribe(type_url, "a"))
    (answer,) = peer.publish(type_url, *some(type_url, a=2))
    assert peer.nack(answer, "a") == []
    assert peer.world.seen.nacks == [(type_url, ("a",), "a: no")]
    for _ in range(3):
        assert peer.publish(type_url, *some(type_url, a=2)) == []
    (mended,) = peer.publish(type_url, *some(type_url, a=3))
    assert mended.names == {"a"}
    assert peer.ack(mended) == []
    assert peer.bodies(type_url) == bodies(type_url, a=3)


@every_type
def test_what_is_refused_holds_up_neither_siblings_nor_other_names(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "b", "c"))
    answers = peer.publish(type_url, *some(type_url, a=2, b=2, c=1))
    refused = made(type_url, "b", 2).body
    while answers:
        (answer,) = answers
        bad = [name for name in answer.names if answer.resources[name] == refused]
        answers = peer.nack(answer, *bad) if bad else peer.ack(answer)
    assert peer.bodies(type_url) == bodies(type_url, a=2, b=1, c=1)
    assert [names for _, names, _ in peer.world.seen.nacks] == [("b",)]


@every_type
def test_who_comes_back_with_nothing_gets_everything(peer: PromptPeer, type_url: str) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "b"))
    (answer,) = peer.reconnect(remembers=False)
    assert answer.names == {"a", "b"}
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, a=1, b=1)


@types_that_open_empty
def test_who_comes_back_hears_what_changed_and_went_meanwhile(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1, c=1))
    peer.settle(peer.subscribe(type_url))
    peer.disconnect()
    peer.publish(type_url, *some(type_url, b=2, c=1))
    (answer,) = peer.reconnect(remembers=True)
    assert peer.told(answer, news="b", everything="bc")
    assert answer.removed == ({"a"} if peer.way.variant is Variant.DELTA else set())
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, b=2, c=1)


@types_that_open_empty
def test_who_comes_back_with_everything_is_sent_no_more_than_it_cannot_prove(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url))
    answers = peer.reconnect(remembers=True)
    # A version of SotW does not prove what is held: part of a later response may be in effect.
    expected: list[set[str]] = [] if peer.way.variant is Variant.DELTA else [{"a", "b"}]
    assert [answer.names for answer in answers] == expected


@types_that_name
def test_who_comes_back_to_a_type_of_names_is_sent_what_it_may_have_forgotten(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "gone"))
    answers = peer.reconnect(remembers=True)
    policy = policy_of(type_url, peer.way.variant)
    # On a stream of endpoints alone nobody can see whether a cluster waits for them.
    believed = policy.trusts_claims and (peer.way.aggregated or type_url != ENDPOINTS)
    assert [answer.names for answer in answers if answer.names] == ([] if believed else [{"a"}])
    peer.settle(answers)
    assert peer.bodies(type_url) == bodies(type_url, a=1)


@every_type
def test_what_a_stream_refused_is_tried_again_on_the_next(peer: PromptPeer, type_url: str) -> None:
    peer.publish(type_url, *some(type_url, a=1))
    (answer,) = peer.subscribe(type_url, "a")
    peer.nack(answer, "a")
    (again,) = peer.reconnect(remembers=False)
    assert again.names == {"a"}
    assert peer.ack(again) == []


@every_type
def test_a_withheld_name_is_passed_over_until_it_is_released(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.world.hub.withhold("n", type_url, frozenset({"b"}))
    (answer,) = peer.subscribe(type_url, "a", "b")
    assert answer.names == {"a"}
    assert not answer.removed
    assert peer.ack(answer) == []
    peer.world.hub.withhold("n", type_url, frozenset())
    (released,) = peer.hear()
    assert peer.told(released, news="b", everything="ab")


def test_types_are_answered_apart_and_none_waits_for_the_answer_of_another(
    peer: PromptPeer,
) -> None:
    peer.publish(SECRET, *some(SECRET, a=1))
    peer.publish(ENDPOINTS, *some(ENDPOINTS, a=1))
    (secret,) = peer.subscribe(SECRET, "a")
    (members,) = peer.subscribe(ENDPOINTS, "a")
    assert peer.publish(SECRET, *some(SECRET, a=2)) == []
    assert peer.ack(members) == []
    (changed,) = peer.publish(ENDPOINTS, *some(ENDPOINTS, a=2))
    assert (changed.type_url, changed.names) == (ENDPOINTS, {"a"})
    (later,) = peer.ack(secret)
    assert (later.type_url, later.names) == (SECRET, {"a"})
    assert (secret.nonce == members.nonce) is not peer.way.aggregated


@every_type
def test_two_streams_of_a_node_are_told_apart(peer: PromptPeer, type_url: str) -> None:
    other = PromptPeer(peer.world, peer.way)
    peer.publish(type_url, *some(type_url, a=1))
    (first,) = peer.subscribe(type_url, "a")
    (second,) = other.subscribe(type_url, "a")
    assert peer.nack(first, "a") == []
    assert other.ack(second) == []
    peer.publish(type_url, *some(type_url, a=2))
    (changed,) = other.hear()
    assert changed.names == {"a"}
