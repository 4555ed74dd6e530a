"""The ADS client engine of the sidecars, without a network."""

from collections.abc import Mapping
from random import Random

import pytest
from xds.type.v3 import typed_struct_pb2

from headrace import limits, names
from headrace_sidecar.adsclient.backoff import Backoff
from headrace_sidecar.adsclient.engine import AdsClientEngine
from headrace_sidecar.adsclient.messages import (
    Assigned,
    NodeInfo,
    Received,
    Removed,
    Request,
    Response,
)

TYPE = names.ASSIGNMENT_TYPE_URL
NODE = NodeInfo("gpu/a")


def given(name: str, version: str, nonce: str) -> Response:
    message = typed_struct_pb2.TypedStruct(type_url=names.ASSIGNMENT_KIND)
    message.value.update({"version": version})
    body = message.SerializeToString()
    return Response(TYPE, nonce, (Received(name, version, TYPE, body),))


def taken(name: str, nonce: str) -> Response:
    return Response(TYPE, nonce, (), (name,))


def one(events: tuple[Assigned | Removed, ...]) -> Assigned | Removed:
    (event,) = events
    return event


@pytest.fixture
def engine() -> AdsClientEngine:
    engine = AdsClientEngine(type_url=TYPE, node=NODE)
    engine.connect()
    assert engine.take() == (Request(type_url=TYPE, subscribe=("*",), node=NODE),)
    return engine


def answer(nonce: str, error: str | None = None) -> tuple[Request, ...]:
    return (Request(type_url=TYPE, nonce=nonce, error=error),)


def test_an_assignment_is_handed_over_with_its_json(engine: AdsClientEngine) -> None:
    event = one(engine.receive(given("m@1", "v1", "1")))
    assert isinstance(event, Assigned)
    assert (event.name, event.version, event.kind, event.value) == (
        "m@1",
        "v1",
        names.ASSIGNMENT_KIND,
        {"version": "v1"},
    )
    assert engine.take() == ()


def test_answers_go_out_with_their_nonce_in_any_order(engine: AdsClientEngine) -> None:
    first = one(engine.receive(given("m@1", "v", "1")))
    second = one(engine.receive(given("m@2", "v", "2")))
    engine.ack(second.nonce)
    engine.nack(first.nonce, "no memory")
    assert engine.take() == (*answer("2"), *answer("1", "no memory"))
    assert engine.ready == {"m@2": "v"}


def test_what_is_ready_is_claimed_on_the_next_stream(engine: AdsClientEngine) -> None:
    engine.ack(one(engine.receive(given("m@1", "v", "1"))).nonce)
    engine.disconnect()
    engine.connect()
    (first,) = engine.take()
    assert (first.subscribe, first.initial_versions, first.node) == (("*",), {"m@1": "v"}, NODE)


def test_work_goes_on_across_a_reconnect_and_answers_the_new_nonce(
    engine: AdsClientEngine,
) -> None:
    work = one(engine.receive(given("m@1", "v", "1")))
    engine.disconnect()
    engine.connect()
    (first,) = engine.take()
    # Asked for by name, so that the server must say if it was taken away meanwhile.
    assert first.subscribe == ("*", "m@1")
    assert engine.receive(given("m@1", "v", "9")) == ()
    engine.ack(work.nonce)
    assert engine.take() == answer("9")


def test_an_answer_given_while_disconnected_is_not_lost(engine: AdsClientEngine) -> None:
    done = one(engine.receive(given("m@1", "v", "1")))
    failed = one(engine.receive(given("m@2", "v", "2")))
    engine.disconnect()
    engine.ack(done.nonce)
    engine.nack(failed.nonce, "broken")
    engine.connect()
    (first,) = engine.take()
    assert first.initial_versions == {"m@1": "v"}
    assert engine.receive(given("m@2", "v", "7")) == ()
    assert engine.take() == answer("7", "broken")


def test_a_newer_version_replaces_the_one_in_work(engine: AdsClientEngine) -> None:
    older = one(engine.receive(given("m@1", "v1", "1")))
    newer = one(engine.receive(given("m@1", "v2", "2")))
    engine.ack(older.nonce)
    assert (engine.take(), engine.ready) == ((), {})
    engine.ack(newer.nonce)
    assert (engine.take(), engine.ready) == (answer("2"), {"m@1": "v2"})


def test_the_version_that_serves_is_claimed_while_a_newer_one_is_in_work(
    engine: AdsClientEngine,
) -> None:
    engine.ack(one(engine.receive(given("m@1", "v1", "1"))).nonce)
    newer = one(engine.receive(given("m@1", "v2", "2")))
    assert claimed_on_reconnect(engine) == {"m@1": "v1"}
    assert engine.receive(given("m@1", "v2", "3")) == (), "it goes on with what it works on"
    engine.ack(newer.nonce)
    assert claimed_on_reconnect(engine) == {"m@1": "v2"}


def test_the_version_that_serves_is_claimed_after_a_newer_one_was_refused(
    engine: AdsClientEngine,
) -> None:
    engine.ack(one(engine.receive(given("m@1", "v1", "1"))).nonce)
    engine.nack(one(engine.receive(given("m@1", "v2", "2"))).nonce, "no")
    assert claimed_on_reconnect(engine) == {"m@1": "v1"}
    assert engine.receive(given("m@1", "v2", "3")) == ()
    assert engine.take() == answer("3", "no"), "still refused, without another try"
    assert engine.receive(given("m@1", "v1", "4")) == ()
    assert engine.take() == answer("4"), "the edit was taken back"


def test_an_edit_that_is_taken_back_while_disconnected_ends_the_work_on_it(
    engine: AdsClientEngine,
) -> None:
    engine.ack(one(engine.receive(given("m@1", "v1", "1"))).nonce)
    newer = one(engine.receive(given("m@1", "v2", "2")))
    assert claimed_on_reconnect(engine) == {"m@1": "v1"}
    back = one(engine.receive(given("m@1", "v1", "3")))
    engine.ack(newer.nonce)
    assert (engine.take(), engine.ready) == ((), {"m@1": "v1"})
    engine.ack(back.nonce)
    assert (engine.take(), engine.ready) == (answer("3"), {"m@1": "v1"})


def test_what_is_being_removed_is_claimed_no_more(engine: AdsClientEngine) -> None:
    engine.ack(one(engine.receive(given("m@1", "v1", "1"))).nonce)
    engine.receive(taken("m@1", "2"))
    assert claimed_on_reconnect(engine) == {}


def claimed_on_reconnect(engine: AdsClientEngine) -> Mapping[str, str]:
    engine.disconnect()
    engine.connect()
    (first,) = engine.take()
    return first.initial_versions


def test_a_removal_is_acknowledged_when_it_is_done(engine: AdsClientEngine) -> None:
    engine.ack(one(engine.receive(given("m@1", "v", "1"))).nonce)
    engine.take()
    removal = one(engine.receive(taken("m@1", "2")))
    assert isinstance(removal, Removed)
    assert (engine.take(), engine.ready) == ((), {})
    engine.ack(removal.nonce)
    assert engine.take() == answer("2")


def test_a_version_that_is_ready_is_not_handed_over_again(engine: AdsClientEngine) -> None:
    engine.ack(one(engine.receive(given("m@1", "v", "1"))).nonce)
    assert engine.receive(given("m@1", "v", "2")) == ()
    assert engine.take() == (*answer("1"), *answer("2"))


def test_a_forgotten_version_is_offered_and_handed_over_again(engine: AdsClientEngine) -> None:
    engine.nack(one(engine.receive(given("m@1", "v", "1"))).nonce, "no")
    engine.forget("m@1")
    assert isinstance(one(engine.receive(given("m@1", "v", "2"))), Assigned)


def test_leaving_is_said_now_and_on_every_later_stream(engine: AdsClientEngine) -> None:
    engine.ack(one(engine.receive(given("m@1", "v", "1"))).nonce)
    engine.take()
    engine.leave()
    engine.leave()
    assert engine.take() == (Request(type_url=TYPE, unsubscribe=("*",)),)
    engine.disconnect()
    engine.connect()
    (first,) = engine.take()
    assert (first.subscribe, first.unsubscribe) == ((), ("*",))
    assert first.initial_versions == {"m@1": "v"}


@pytest.mark.parametrize(
    ("response", "error"),
    [
        pytest.param(
            Response(TYPE, "1", (Received("m@1", "v", "type/other", b""),)),
            "m@1: type/other is not a TypedStruct",
            id="another-type",
        ),
        pytest.param(
            Response(TYPE, "1", (), ("m@1", "m@2")),
            "one resource a response is expected",
            id="two-at-once",
        ),
        pytest.param(Response(TYPE, "1"), None, id="empty"),
    ],
)
def test_what_cannot_be_handed_over_is_answered_at_once(
    engine: AdsClientEngine, response: Response, error: str | None
) -> None:
    assert engine.receive(response) == ()
    assert engine.take() == answer("1", error)


def test_unreadable_bytes_are_refused(engine: AdsClientEngine) -> None:
    engine.receive(Response(TYPE, "1", (Received("m@1", "v", TYPE, b"\xff"),)))
    (refusal,) = engine.take()
    assert refusal.error is not None
    assert "not a TypedStruct" in refusal.error


def test_assignments_per_node_are_limited(
    engine: AdsClientEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ASSIGNMENTS_PER_NODE", 2)
    engine.ack(one(engine.receive(given("m@1", "v", "1"))).nonce)
    one(engine.receive(given("m@2", "v", "2")))
    engine.take()
    assert engine.receive(given("m@3", "v", "3")) == ()
    assert engine.take() == answer("3", "this node holds as many assignments as it may")
    # A newer version of what it holds takes no more room.
    assert isinstance(one(engine.receive(given("m@1", "v2", "4"))), Assigned)


def test_it_says_in_one_line_how_it_stands(engine: AdsClientEngine) -> None:
    engine.receive(given("m@1", "v", "1"))
    assert repr(engine) == (
        "AdsClientEngine(gpu/a connected=True ready=0 working=1 refused=0 leaving=False)"
    )


def test_waits_grow_to_a_limit_and_are_forgotten_after_a_steady_stream() -> None:
    backoff, rng = Backoff(), Random(1)
    waits = [backoff.next_delay_s(lived_s=0.0, rng=rng) for _ in range(40)]
    assert limits.RECONNECT_MIN_S / 2 <= waits[0] <= limits.RECONNECT_MIN_S
    assert all(limits.RECONNECT_MAX_S / 2 <= wait <= limits.RECONNECT_MAX_S for wait in waits[8:])
    steady = backoff.next_delay_s(lived_s=limits.RECONNECT_STEADY_S, rng=rng)
    assert steady <= limits.RECONNECT_MIN_S


def test_waits_are_spread_out() -> None:
    rng = Random(1)
    assert len({Backoff().next_delay_s(lived_s=0.0, rng=rng) for _ in range(50)}) == 50
