"""The hub: who gets what, who is told what, and what the encoder shares."""

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from headrace import limits
from headrace_xds.hub import Connection
from headrace_xds.inner_name import read
from headrace_xds.messages import NodeInfo, Rejection, Request, Response
from headrace_xds.server import close_pause_s
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, ROUTES, Resource
from headrace_xds.wire import Encoder, decode_request
from tests.fakes.ads_model import plain
from tests.fakes.ads_recorder import RecordedHub
from tests.fakes.ads_resources import cluster, endpoints, listener, routes

LISTENERS = "type.googleapis.com/envoy.config.listener.v3.Listener"
ONE = endpoints("a", 1)


def opened(world: RecordedHub, node: str, woken: list[str] | None = None) -> Connection:
    calls = woken if woken is not None else []
    connection = world.hub.open(lambda: calls.append(node))
    assert isinstance(connection, Connection)
    request = Request(type_url=ENDPOINTS, subscribe=("a",), node=NodeInfo(node))
    assert connection.receive(request) is None
    return connection


def test_a_stream_is_unavailable_before_anything_is_published() -> None:
    rejection = RecordedHub().hub.open(lambda: None)
    assert isinstance(rejection, Rejection)
    assert rejection.status == "UNAVAILABLE"


def test_streams_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS", 2)
    world = RecordedHub()
    world.publish("n", ENDPOINTS, ONE)
    first = opened(world, "n")
    opened(world, "n")
    rejection = world.hub.open(lambda: None)
    assert isinstance(rejection, Rejection)
    assert rejection.status == "RESOURCE_EXHAUSTED"
    first.close()
    opened(world, "n")


def test_every_stream_of_a_node_gets_what_its_group_gets() -> None:
    world = RecordedHub()
    world.publish("n", ENDPOINTS, ONE)
    world.publish("other", ENDPOINTS)
    streams = [opened(world, "n"), opened(world, "n"), opened(world, "other")]
    taken = [stream.take() for stream in streams]
    assert taken[0] == taken[1] != taken[2]
    assert [response.removed for response in world.sent.responses] == [(), (), ("a",)]
    assert world.seen.streams == 3
    streams[0].close()
    assert (world.seen.streams, len(world.hub.connections)) == (2, 2)


def test_routes_that_are_held_back_are_reported_at_every_change() -> None:
    world = RecordedHub()
    world.publish("n", CLUSTER, cluster("a"))
    world.publish("n", ROUTES, routes("r", "b"))
    connection = world.hub.open(lambda: None)
    assert isinstance(connection, Connection)
    node = NodeInfo("n")
    assert connection.receive(Request(type_url=CLUSTER, node=node)) is None
    connection.take()
    assert connection.receive(Request(type_url=CLUSTER, nonce="1")) is None
    assert connection.receive(Request(type_url=ROUTES, subscribe=("r",))) is None
    connection.take()
    connection.take()
    assert world.seen.waiting == [{"r": frozenset({"b"})}]
    world.publish("n", CLUSTER, cluster("a"), cluster("b"))
    connection.take()
    assert connection.receive(Request(type_url=CLUSTER, nonce="2")) is None
    connection.take()
    assert world.seen.waiting == [{"r": frozenset({"b"})}, {}]


@pytest.mark.parametrize("streams", [0, 1, 100, limits.STREAMS])
def test_close_spread_s_bounds_the_time_in_which_streams_are_ended(streams: int) -> None:
    spread_s = close_pause_s(streams) * streams
    assert spread_s <= limits.CLOSE_SPREAD_S + 1e-9
    assert (spread_s == pytest.approx(limits.CLOSE_SPREAD_S)) is (streams == limits.STREAMS)


def test_only_streams_of_a_changed_group_are_woken() -> None:
    world, woken = RecordedHub(), list[str]()
    world.publish("n", ENDPOINTS, ONE)
    opened(world, "n", woken)
    opened(world, "other", woken)
    woken.clear()
    world.publish("n", ENDPOINTS, ONE)
    assert woken == []
    world.publish("n", ENDPOINTS, endpoints("a", 2))
    assert woken == ["n"]


def test_the_first_publication_of_a_type_answers_who_waited() -> None:
    world, woken = RecordedHub(), list[str]()
    world.publish("other", ENDPOINTS)
    connection = opened(world, "n", woken)
    assert connection.take() == []
    woken.clear()
    world.publish("n", ENDPOINTS)
    assert woken == ["n"]
    assert len(connection.take()) == 1


def test_a_group_with_streams_is_not_dropped() -> None:
    world = RecordedHub()
    world.publish("n", ENDPOINTS, ONE)
    connection = opened(world, "n")
    world.hub.drop_group("n")
    assert "groups=1" in repr(world.hub)
    connection.close()
    world.hub.drop_group("n")
    assert "groups=0" in repr(world.hub)


def test_a_stream_that_never_said_who_it_is_closes_quietly() -> None:
    world = RecordedHub()
    world.publish("n", ENDPOINTS, ONE)
    connection = world.hub.open(lambda: None)
    assert isinstance(connection, Connection)
    connection.close()
    assert (world.seen.streams, world.hub.connections) == (0, ())


def test_a_body_is_encoded_once_and_the_nonce_appended() -> None:
    encoder = Encoder()
    first, second = (encoder.encode(Response(ENDPOINTS, nonce, (ONE,), ("b",))) for nonce in "12")
    assert repr(encoder).startswith("Encoder(bodies=1 ")
    message = discovery_pb2.DeltaDiscoveryResponse.FromString(second)
    assert (message.nonce, message.type_url) == ("2", ENDPOINTS)
    assert (list(message.removed_resources), message.resources[0].version) == (["b"], ONE.version)
    assert message.resources[0].resource.value == ONE.body
    assert first[:-1] == second[:-1]


def test_encoded_responses_bytes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENCODED_RESPONSES_BYTES", 1_000)
    encoder = Encoder()
    for number in range(10):
        resource = plain(ENDPOINTS, f"c{number}", b"x" * 300)
        encoder.encode(Response(ENDPOINTS, "1", (resource,)))
    assert repr(encoder).startswith("Encoder(bodies=2 ")


def test_a_nack_is_told_by_the_presence_of_its_error() -> None:
    message = discovery_pb2.DeltaDiscoveryRequest(type_url=ENDPOINTS, response_nonce="1")
    assert decode_request(message.SerializeToString()).error is None
    message.error_detail.SetInParent()
    assert decode_request(message.SerializeToString()).error == ""


def test_a_node_without_a_build_version_says_what_it_calls_itself() -> None:
    message = discovery_pb2.DeltaDiscoveryRequest(type_url=ENDPOINTS)
    message.node.id, message.node.user_agent_version = "gpu/a", "0.1.0"
    message.node.metadata.update({"pool": "p"})
    node = decode_request(message.SerializeToString()).node
    assert node == NodeInfo("gpu/a", metadata={"pool": "p"}, build="0.1.0")


@pytest.mark.parametrize(
    "resource",
    [cluster("n"), endpoints("n", 1), listener("n", 1, "r"), routes("n", "c")],
    ids=lambda resource: str(resource.type_url).rpartition(".")[2],
)
def test_the_name_inside_a_resource_is_found(resource: Resource) -> None:
    assert read(resource.body) == "n"


def test_the_name_is_found_behind_fields_of_every_wire_type() -> None:
    body = b"\x10\x96\x01" + b"\x19" + b"8" * 8 + b"\x25" + b"4" * 4 + b"\x2a\x01x" + b"\x0a\x01n"
    assert read(body) == "n"


@pytest.mark.parametrize("body", [b"\x0a", b"\x0b", b"\x0a\x01\xff"])
def test_bytes_that_are_no_message_have_no_name(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a protobuf message"):
        read(body)
