"""The ADS server over real gRPC: real sidecar clients, slow clients, restarts."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest
from xds.type.v3 import typed_struct_pb2

from headrace import limits, names
from headrace_sidecar.adsclient.client import METHOD, AdsClient
from headrace_sidecar.adsclient.messages import Assigned, NodeInfo, Removed, Request
from headrace_sidecar.adsclient.wire import decode_response, encode_request
from headrace_xds.server import AdsServer, serve
from headrace_xds.translate.resources import LISTENER, Resource, resource
from tests.fakes.ads_recorder import RecordedHub, until
from tests.fakes.ads_resources import listener

pytestmark = [pytest.mark.e2e]

TYPE = names.ASSIGNMENT_TYPE_URL
GPU = "gpu/a"


def assignment(name: str, attempt: int = 0) -> Resource:
    message = typed_struct_pb2.TypedStruct(type_url=names.ASSIGNMENT_KIND)
    message.value.update({"attempt": attempt})
    return resource(TYPE, name, message.SerializeToString(deterministic=True))


@dataclass
class Owner:
    """Keeps what it is handed, and answers nothing by itself."""

    work: list[Assigned | Removed] = field(default_factory=list)
    connects: int = 0
    reasons: list[str] = field(default_factory=list)

    def assigned(self, assigned: Assigned) -> None:
        self.work.append(assigned)

    def removed(self, removed: Removed) -> None:
        self.work.append(removed)

    def connected(self) -> None:
        self.connects += 1

    def disconnected(self, reason: str) -> None:
        self.reasons.append(reason)


@asynccontextmanager
async def sidecar(port: int) -> AsyncIterator[tuple[AdsClient, Owner]]:
    owner = Owner()
    client = AdsClient(
        server=f"127.0.0.1:{port}",
        node=NodeInfo(GPU, region="eu", metadata={"slots": 1}),
        handler=owner,
        now=time.monotonic,
        rng=random.Random(1),
    )
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(client.run())
        yield client, owner
        run.cancel()


@pytest.fixture
async def world() -> RecordedHub:
    world = RecordedHub()
    world.publish(GPU, TYPE, *(assignment(f"m@{version}") for version in range(1, 3)))
    return world


@pytest.fixture
async def server(world: RecordedHub) -> AsyncIterator[AdsServer]:
    server = await serve(world.hub, "127.0.0.1:0")
    yield server
    await server.stop()


async def test_a_sidecar_receives_answers_and_leaves(world: RecordedHub, server: AdsServer) -> None:
    async with sidecar(server.port) as (client, owner):
        await until(lambda: len(owner.work) == 2)
        client.ack(owner.work[1].nonce)
        client.nack(owner.work[0].nonce, "no memory")
        await until(lambda: world.seen.holds(assignment("m@2")))
        await until(lambda: world.seen.nacks == [(TYPE, ("m@1",), "no memory")])
        client.leave()
        await until(lambda: world.seen.left == [TYPE])
        (node,) = world.seen.nodes
        assert (node.id, node.region, node.metadata) == (GPU, "eu", {"slots": 1})
    await until(lambda: world.seen.streams == 0)


async def test_a_sidecar_outlives_the_server_and_nothing_is_handed_over_twice(
    world: RecordedHub, server: AdsServer
) -> None:
    async with sidecar(server.port) as (client, owner):
        await until(lambda: len(owner.work) == 2)
        client.ack(owner.work[0].nonce)
        await until(lambda: world.seen.holds(assignment("m@1")))
        await server.stop()
        await until(lambda: bool(owner.reasons))
        client.ack(owner.work[1].nonce)
        again = RecordedHub()
        again.publish(GPU, TYPE, assignment("m@1"), assignment("m@2"), assignment("m@3"))
        second = await serve(again.hub, f"127.0.0.1:{server.port}")
        await until(lambda: len(owner.work) == 3)
        assert owner.work[2].name == "m@3"
        versions = {f"m@{version}": assignment(f"m@{version}").version for version in (1, 2)}
        assert again.seen.claims == [(TYPE, versions)]
        assert again.sent.count(assignment("m@1")) == again.sent.count(assignment("m@2")) == 0
    await second.stop()


async def test_a_changed_node_is_told_on_a_new_stream_at_once(
    world: RecordedHub, server: AdsServer
) -> None:
    async with sidecar(server.port) as (client, owner):
        await until(lambda: owner.connects == 1)
        client.update_node(NodeInfo(GPU, metadata={"slots": 2}))
        await until(lambda: len(world.seen.nodes) == 2)
        assert world.seen.nodes[1].metadata == {"slots": 2}
        await until(lambda: world.seen.streams == 1)


async def test_stopping_ends_every_stream_without_an_error(world: RecordedHub) -> None:
    server = await serve(world.hub, "127.0.0.1:0")
    async with sidecar(server.port) as (_, first), sidecar(server.port) as (_, second):
        await until(lambda: first.connects == second.connects == 1)
        await server.stop()
        await until(lambda: bool(first.reasons and second.reasons))
        assert first.reasons[0] == second.reasons[0] == "the server ended the stream"
        assert world.hub.connections == ()


@asynccontextmanager
async def raw_stream(
    port: int, *options: tuple[str, int]
) -> AsyncIterator[grpc.aio.StreamStreamCall[bytes, bytes]]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = channel.stream_stream(
            METHOD, request_serializer=lambda data: data, response_deserializer=lambda data: data
        )(None)
        yield call
        call.cancel()


async def test_a_client_that_takes_no_bytes_is_cut_off_after_the_write_deadline(
    world: RecordedHub,
) -> None:
    padding = "x" * 3 * 2**20
    world.publish("slow", LISTENER, listener("l", 1, "r", stat_prefix=padding))
    server = AdsServer(world.hub, write_deadline_s=limits.WRITE_DEADLINE_S / 60)
    await server.start("127.0.0.1:0")
    async with raw_stream(
        server.port, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)
    ) as call:
        await call.write(encode_request(Request(LISTENER, node=NodeInfo("slow"))))
        await until(lambda: world.seen.streams == 1)
        await until(lambda: world.seen.streams == 0)
        # Once it reads again it is told, and can open another stream.
        assert isinstance(await call.read(), bytes)
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
    await server.stop()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, id="not-a-request"),
        pytest.param(
            encode_request(Request("", node=NodeInfo("n"))),
            grpc.StatusCode.INVALID_ARGUMENT,
            id="no-type",
        ),
    ],
)
async def test_a_request_that_makes_no_sense_gets_a_status(
    world: RecordedHub, server: AdsServer, data: bytes, status: grpc.StatusCode
) -> None:
    async with raw_stream(server.port) as call:
        await call.write(data)
        assert await call.code() == status
    assert world.hub.connections == ()


async def test_ads_message_bytes_bound_what_a_client_may_send(
    world: RecordedHub, server: AdsServer
) -> None:
    async with raw_stream(server.port) as call:
        await call.write(bytes(limits.ADS_MESSAGE_BYTES + 1))
        assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert world.hub.connections == ()


async def test_before_a_configuration_streams_are_unavailable() -> None:
    server = await serve(RecordedHub().hub, "127.0.0.1:0")
    async with raw_stream(server.port) as call:
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
    await server.stop()


async def test_a_response_carries_the_names_and_versions_that_were_published(
    world: RecordedHub, server: AdsServer
) -> None:
    async with raw_stream(server.port) as call:
        await call.write(encode_request(Request(TYPE, subscribe=("*",), node=NodeInfo(GPU))))
        data = await call.read()
        assert isinstance(data, bytes)
        (received,) = decode_response(data).resources
        assert (received.name, received.version) == ("m@1", assignment("m@1").version)
