"""Assignments on one ADS stream: one a response, answered in any order."""

import pytest

from headrace import limits, names
from headrace_xds.messages import Acked, Request
from tests.fakes.ads_conversation import Conversation, contents
from tests.fakes.ads_model import plain

ASSIGNMENT = names.ASSIGNMENT_TYPE_URL


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_assignments_in_flight_are_limited_and_answered_in_any_order(talk: Conversation) -> None:
    made = [plain(ASSIGNMENT, f"m@{number}", b"1") for number in range(6)]
    talk.publish(ASSIGNMENT, *made)
    responses = talk.ask(ASSIGNMENT, "*")
    assert len(responses) == limits.ASSIGNMENTS_IN_FLIGHT
    assert all(len(response.resources) == 1 for response in responses)
    (fifth,) = talk.ack(responses[2])
    (sixth,) = talk.nack(responses[0])
    assert contents([fifth, sixth]) == [({"m@4"}, set()), ({"m@5"}, set())]
    for response in (responses[3], responses[1], sixth, fifth):
        assert talk.ack(response) == []


def test_a_newer_assignment_replaces_the_one_in_work_without_taking_another_place(
    talk: Conversation,
) -> None:
    made = [plain(ASSIGNMENT, f"m@{number}", b"1") for number in range(5)]
    talk.publish(ASSIGNMENT, *made)
    talk.ask(ASSIGNMENT, "*")
    newer = plain(ASSIGNMENT, "m@0", b"2")
    (replaced,) = talk.publish(ASSIGNMENT, newer, *made[1:])
    assert replaced.resources == (newer,)
    (removed,) = talk.publish(ASSIGNMENT, *made[1:])
    assert removed.removed == ("m@0",)
    # The answers to what was replaced mean nothing any more.
    assert talk.say(Request(type_url=ASSIGNMENT, nonce="1")) == ()
    events = talk.say(Request(type_url=ASSIGNMENT, nonce=removed.nonce))
    assert events == (Acked(ASSIGNMENT, {"m@0": ""}),)
    assert contents(talk.take()) == [({"m@4"}, set())]


def test_an_assignment_that_was_refused_is_offered_again_only_when_it_changed(
    talk: Conversation,
) -> None:
    first, second = plain(ASSIGNMENT, "m@1", b"1"), plain(ASSIGNMENT, "m@1", b"attempt 2")
    talk.publish(ASSIGNMENT, first)
    assert talk.nack(talk.ask(ASSIGNMENT, "*")[0]) == []
    assert contents(talk.publish(ASSIGNMENT, second)) == [({"m@1"}, set())]


def test_what_a_node_claims_is_sent_again_only_when_it_works_on_something_else(
    talk: Conversation,
) -> None:
    serves, works = plain(ASSIGNMENT, "m@1", b"1"), plain(ASSIGNMENT, "m@2", b"1")
    talk.publish(ASSIGNMENT, serves, works)
    claims = {"m@1": serves.version, "m@2": works.version}
    assert contents(talk.ask(ASSIGNMENT, "*", "m@2", claims=claims)) == [({"m@2"}, set())]


def test_an_assignment_that_was_refused_and_withdrawn_is_removed(talk: Conversation) -> None:
    talk.publish(ASSIGNMENT, plain(ASSIGNMENT, "m@1", b"1"))
    talk.nack(talk.ask(ASSIGNMENT, "*")[0])
    assert contents(talk.publish(ASSIGNMENT)) == [(set(), {"m@1"})]
