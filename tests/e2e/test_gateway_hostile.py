"""Requests that try to pass for others, to tunnel, or to have nodes ejected, at a real Envoy."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace import headers
from tests.fakes.ads_recorder import until
from tests.fakes.mesh_gateway import (
    ALWAYS,
    INFER,
    SERVICE,
    VISION,
    MeshGateway,
    long_field,
    running,
)
from tests.fakes.mesh_ir import KEY, route, served
from tests.fakes.mesh_node import Answer, MeshNode

pytestmark = pytest.mark.e2e

START = f"POST {INFER} HTTP/1.1\r\nhost: a\r\nx-api-key: {KEY}\r\n"
END = "content-length: 0\r\n\r\n"
PARTS = (served("vision", 1), route("vision", "vision", *ALWAYS))


async def test_h05_h18_h19_requests_that_mean_two_things_reach_no_node(tmp_path: Path) -> None:
    target = INFER.removeprefix("/")
    keyed = f"x-api-key: {KEY}\r\n"
    upgrade = "connection: upgrade\r\nupgrade: websocket\r\n"
    cases = {
        "H05 zero byte": (f"{START}x-a: b\0c\r\n{END}", (400,)),
        "H05 space before the colon": (f"{START}x-a : b\r\n{END}", (400,)),
        "H18 no host": (f"POST {INFER} HTTP/1.1\r\n{keyed}{END}", (400,)),
        "H18 two hosts": (f"{START}host: b\r\n{END}", (400,)),
        "H18 other host": (
            f"POST http://evil/{target} HTTP/1.1\r\nhost: a\r\n{keyed}{END}", (400, 404)),
        "H19 upgrade": (
            f"GET /v2/models/vision HTTP/1.1\r\nhost: a\r\n{keyed}{upgrade}\r\n", (404,)),
        "H19 upgrade of a POST": (f"{START}{upgrade}{END}", (404,)),
        "H19 CONNECT": (f"CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n{keyed}\r\n", (401, 403, 404)),
    }  # fmt: skip
    async with running(tmp_path, *PARTS, nodes=1) as (gateway, [node]):
        for case, (request, statuses) in cases.items():
            answer = await gateway.raw(request)
            assert int(answer.split()[1]) in statuses, (case, answer[:200])
        assert node.seen == []


async def test_h05_odd_line_ends_arrive_as_one_plain_request(tmp_path: Path) -> None:
    """Envoy takes them, as RFC 9112 allows; what a node gets is written anew."""
    forged = f"{headers.TENANT}: evil"
    async with running(tmp_path, *PARTS, nodes=1) as (gateway, [node]):
        for name, request in {
            "bare line feeds": f"{START}{END}".replace("\r\n", "\n"),
            "a folded line": f"{START}x-a: b\r\n {forged}\r\n{END}",
            "a lone carriage return": f"{START}x-a: b\r{forged}\r\n{END}",
        }.items():
            node.seen.clear()
            status = int((await gateway.raw(request)).split()[1])
            assert status in (200, 400), name
            for seen in node.seen:
                assert seen.headers[headers.TENANT] == "demo", name
                assert not any(mark in value for value in seen.headers.values() for mark in "\r\n")


async def ejections(gateway: MeshGateway) -> int:
    return sum(
        [
            await gateway.stat(f"cluster.m-vision-1-{protocol}.outlier_detection.{name}")
            for protocol in ("http", "grpc")
            for name in ("ejections_enforced_total", "ejections_overflow")
        ]
    )


BARE_ERRORS = {
    "a deadline that is over": {"grpc-timeout": "1n"},
    "a deadline that is none": {"grpc-timeout": "soon"},
    "metadata that is no base64": {"x-a-bin": "!!!"},
    "a count that is none": {"grpc-previous-rpc-attempts": "many"},
    "a status of its own": {"grpc-status": "13"},
    "an unknown compression": {"grpc-encoding": "none-such"},
    "no trailers": {"te": "nothing"},
}


async def test_no_header_of_a_call_has_a_node_ejected(tmp_path: Path) -> None:
    framed = b"\0" + len(VISION).to_bytes(4, "big") + VISION
    async with running(tmp_path, *PARTS) as (gateway, nodes):
        for sent in BARE_ERRORS.values():
            for _ in range(12):
                reply = await gateway.send(
                    SERVICE + "ModelInfer",
                    body=framed,
                    sent={"content-type": "application/grpc", **sent},
                )
                assert reply.status == 200
        assert await ejections(gateway) == 0
        seen = [each for node in nodes for each in node.seen]
        assert len(seen) == 12 * (len(BARE_ERRORS) - 1), "only what is compressed is refused"
        assert {each.headers.get(headers.DEADLINE) for each in seen} == {None, "1"}
        assert not [name for each in seen for name in each.headers if name.endswith("-bin")]


async def test_the_time_a_caller_has_left_reaches_the_node_in_milliseconds(tmp_path: Path) -> None:
    framed = b"\0" + len(VISION).to_bytes(4, "big") + VISION
    kind = {"content-type": "application/grpc"}
    async with running(tmp_path, *PARTS, nodes=1) as (gateway, [node]):
        for given, told in {
            "2S": "2000", "3M": "180000", "1H": "3600000", "250m": "250", "1500u": "2", "1n": "1",
            "99999999H": "1000000000", "123456789S": None, "-1S": None, "1": None,
        }.items():  # fmt: skip
            sent = {**kind, "grpc-timeout": given, headers.DEADLINE: "7"}
            await gateway.send(SERVICE + "ModelInfer", body=framed, sent=sent)
            assert node.seen[-1].headers.get(headers.DEADLINE) == told, given
        assert not [name for name in node.seen[-1].headers if name.startswith("grpc-")]
        refused = await gateway.http.get(
            f"http://127.0.0.1:{gateway.port}{SERVICE}ModelInfer",
            headers={**kind, "x-api-key": KEY},
        )
        assert refused.headers["grpc-status"] == str(grpc.StatusCode.UNIMPLEMENTED.value[0])


async def test_callers_who_leave_have_no_node_ejected(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS) as (gateway, nodes):
        released = asyncio.Event()

        def wait(_: Any) -> Answer:
            return Answer(after=released)

        for node in nodes:
            node.behave = wait
        try:
            assert gateway.channel is not None
            channel: Any = gateway.channel
            for _ in range(20):
                await leave(channel, nodes)
                call = asyncio.create_task(gateway.send(INFER))
                await reached(nodes)
                call.cancel()
            assert await ejections(gateway) == 0
        finally:
            released.set()


async def leave(channel: Any, nodes: list[MeshNode]) -> None:
    """Make a gRPC call, and cancel it once it is at a node."""
    call = channel.unary_unary(SERVICE + "ModelInfer")(VISION, metadata=(("x-api-key", KEY),))
    await reached(nodes)
    call.cancel()


async def reached(nodes: list[MeshNode]) -> None:
    """Wait until one more request has reached a node."""
    before = sum(len(node.seen) for node in nodes)
    await until(lambda: sum(len(node.seen) for node in nodes) > before, what="the request")


async def test_a_stream_carries_more_than_the_largest_body(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS, nodes=1) as (gateway, _):
        stream = gateway.stream((("x-api-key", KEY), (headers.MODEL_HINT, "vision")))
        message = long_field(7, 2**20)
        for _ in range(12):
            await stream.write(message)
            assert await stream.read() == message
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
        unknown = gateway.stream((("x-api-key", KEY), (headers.MODEL_HINT, "none")))
        assert await unknown.code() is grpc.StatusCode.NOT_FOUND
        unnamed = gateway.stream((("x-api-key", KEY),))
        assert await unnamed.code() is grpc.StatusCode.NOT_FOUND
