"""What any client of any variant may expect, whether its types share a stream or have their own.

The scenarios are the ones that public conformance suites of xDS have: subscribing, unsubscribing,
and changes; answers and returns are next door. Each runs in every way a client can speak.
"""

import pytest

from headrace_xds.messages import Variant
from tests.fakes.ads_peer import WILDCARD, PromptPeer, bodies, some
from tests.fakes.ads_scenarios import every_type, types_that_name, types_that_open_empty

all_ways = pytest.mark.parametrize("how", [(), (WILDCARD,)], ids=["by-no-name", "by-star"])


@all_ways
@types_that_open_empty
def test_who_asks_for_everything_gets_everything_once(
    peer: PromptPeer, type_url: str, how: tuple[str, ...]
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1, c=1))
    (answer,) = peer.subscribe(type_url, *how)
    assert answer.names == {"a", "b", "c"}
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, a=1, b=1, c=1)


@all_ways
@types_that_open_empty
def test_who_has_everything_hears_of_what_is_new_changed_and_gone(
    peer: PromptPeer, type_url: str, how: tuple[str, ...]
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1, c=1))
    peer.settle(peer.subscribe(type_url, *how))
    (answer,) = peer.publish(type_url, *some(type_url, b=1, c=2, d=1))
    assert peer.told(answer, news="cd", everything="bcd")
    assert answer.removed == ({"a"} if peer.way.variant is Variant.DELTA else set())
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, b=1, c=2, d=1)


@types_that_open_empty
def test_everything_may_be_asked_for_before_it_exists(peer: PromptPeer, type_url: str) -> None:
    assert peer.subscribe(type_url) == []
    (answer,) = peer.publish(type_url, *some(type_url, a=1))
    assert answer.names == {"a"}


@types_that_name
def test_naming_nothing_gets_nothing_where_names_are_the_custom(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1))
    peer.state(type_url).opened = True
    peer.ask(type_url)
    assert peer.hear() == []
    assert peer.publish(type_url, *some(type_url, a=2)) == []


@every_type
def test_who_names_some_gets_those_and_no_others(peer: PromptPeer, type_url: str) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1, c=1))
    (answer,) = peer.subscribe(type_url, "a", "b")
    assert answer.names == {"a", "b"}
    assert peer.ack(answer) == []
    assert peer.publish(type_url, *some(type_url, a=1, b=1, c=2, d=1)) == []
    (answer,) = peer.publish(type_url, *some(type_url, a=2, b=1, c=3))
    assert peer.told(answer, news="a", everything="ab")
    assert peer.ack(answer) == []


@every_type
def test_a_named_resource_that_does_not_exist_comes_as_soon_as_it_does(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1))
    heard = peer.settle(peer.subscribe(type_url, "a", "later"))
    assert {name for answer in heard for name in answer.names} == {"a"}
    absent = {name for answer in heard for name in answer.removed}
    assert absent == ({"later"} if peer.way.variant is Variant.DELTA else set())
    (answer,) = peer.publish(type_url, *some(type_url, a=1, later=1))
    whole = peer.way.whole(type_url)
    assert answer.names == ({"a", "later"} if whole else {"later"})
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, a=1, later=1)


@every_type
def test_more_names_bring_what_is_new_and_the_others_stay(peer: PromptPeer, type_url: str) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a"))
    (answer,) = peer.subscribe(type_url, "b")
    assert peer.told(answer, news="b", everything="ab")
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, a=1, b=1)


@every_type
def test_many_resources_that_change_at_once_come_in_one_response(
    peer: PromptPeer, type_url: str
) -> None:
    before = {f"r{number}": 1 for number in range(50)}
    peer.publish(type_url, *some(type_url, **before))
    peer.settle(peer.subscribe(type_url, *before))
    after = dict.fromkeys(before, 2)
    (answer,) = peer.publish(type_url, *some(type_url, **after))
    assert answer.names == set(after)
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, **after)


@every_type
def test_what_is_published_again_as_it_was_is_not_sent(peer: PromptPeer, type_url: str) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "b"))
    for _ in range(3):
        assert peer.publish(type_url, *some(type_url, a=1, b=1)) == []


@every_type
def test_nothing_follows_an_acknowledgement_however_often_it_is_said(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1))
    (answer,) = peer.subscribe(type_url, "a")
    for _ in range(3):
        assert peer.ack(answer) == []


@every_type
def test_a_named_resource_that_goes_and_comes_back_is_followed(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "b"))
    heard = peer.settle(peer.publish(type_url, *some(type_url, b=1)))
    deletes = peer.way.variant is Variant.DELTA or peer.way.whole(type_url)
    assert len(heard) == deletes
    assert peer.bodies(type_url).keys() == ({"b"} if deletes else {"a", "b"})
    (answer,) = peer.publish(type_url, *some(type_url, a=2, b=1))
    assert peer.told(answer, news="a", everything="ab")
    peer.ack(answer)
    assert peer.bodies(type_url) == bodies(type_url, a=2, b=1)


@every_type
def test_who_drops_a_name_hears_no_more_of_it(peer: PromptPeer, type_url: str) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "b"))
    assert peer.unsubscribe(type_url, "a") == []
    assert peer.publish(type_url, *some(type_url, a=2, b=1)) == []
    assert peer.publish(type_url, *some(type_url, b=1)) == []
    (answer,) = peer.publish(type_url, *some(type_url, a=3, b=2))
    assert answer.names == {"b"}


@every_type
def test_who_drops_every_name_is_left_alone_and_may_come_back(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "b"))
    assert peer.unsubscribe(type_url, "a", "b") == []
    assert peer.publish(type_url, *some(type_url, a=2, c=1)) == []
    (answer,) = peer.subscribe(type_url, "a")
    assert answer.names == {"a"}
    assert peer.ack(answer) == []
    assert peer.bodies(type_url) == bodies(type_url, a=2)


@every_type
def test_a_name_that_is_dropped_and_asked_for_again_is_sent_again_unchanged(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, "a", "b"))
    assert peer.unsubscribe(type_url, "a") == []
    (answer,) = peer.subscribe(type_url, "a")
    assert peer.told(answer, news="a", everything="ab")


@types_that_open_empty
def test_who_turns_from_everything_to_a_name_hears_of_that_only(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, WILDCARD))
    peer.narrow(type_url, "a")
    peer.settle(peer.hear())
    assert peer.bodies(type_url) == bodies(type_url, a=1)
    assert peer.publish(type_url, *some(type_url, a=1, b=2)) == []
    (answer,) = peer.publish(type_url, *some(type_url, a=2, b=2))
    assert answer.names == {"a"}


@types_that_open_empty
def test_who_leaves_the_wildcard_hears_nothing_until_it_asks_again(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1))
    peer.settle(peer.subscribe(type_url, WILDCARD))
    assert peer.unsubscribe(type_url, WILDCARD) == []
    assert peer.publish(type_url, *some(type_url, a=2)) == []
    (answer,) = peer.subscribe(type_url, WILDCARD)
    assert answer.names == {"a"}


@types_that_open_empty
def test_a_name_beside_the_wildcard_may_be_dropped_and_nothing_is_lost(
    peer: PromptPeer, type_url: str
) -> None:
    peer.publish(type_url, *some(type_url, a=1, b=1))
    peer.settle(peer.subscribe(type_url, WILDCARD, "a"))
    peer.settle(peer.unsubscribe(type_url, "a"))
    assert peer.bodies(type_url) == bodies(type_url, a=1, b=1)
    peer.settle(peer.publish(type_url, *some(type_url, a=2, b=1)))
    assert peer.bodies(type_url) == bodies(type_url, a=2, b=1)
