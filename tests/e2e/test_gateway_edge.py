"""The edge of a translated gateway on the real Envoy: keys, limits, hostile requests."""

import asyncio
import hashlib
import struct
from pathlib import Path

import grpc
import pytest

from headrace import headers, ir, limits
from tests.fakes.ads_recorder import until
from tests.fakes.mesh_gateway import (
    ALWAYS,
    INFER,
    VISION,
    Part,
    long_field,
    mesh_gateway,
    running,
    seen_by,
)
from tests.fakes.mesh_ir import KEY, mesh, route, served
from tests.fakes.mesh_node import OK, Answer, mesh_node

pytestmark = pytest.mark.e2e


async def test_inference_needs_exactly_one_known_key(tmp_path: Path) -> None:
    async with running(tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS)) as (
        gateway,
        nodes,
    ):
        assert (await gateway.send(INFER)).status == 200
        bearer = await gateway.send(INFER, key=None, sent={"authorization": f"Bearer {KEY}"})
        assert bearer.status == 200
        assert len(seen_by(nodes)) == 2
        for seen in seen_by(nodes):
            assert seen.headers[headers.TENANT] == "demo"
            assert seen.headers[headers.TIER] == "standard"
            assert not {"authorization", headers.API_KEY} & seen.headers.keys()

        bodies = set()
        wrong: tuple[dict[str, str], ...] = (
            {},
            {"x-api-key": "no"},
            {"authorization": KEY},
            {"authorization": "Bearer no"},
        )
        for sent in (*wrong, {"x-api-key": KEY, "authorization": f"Bearer {KEY}"}):
            refused = await gateway.send(INFER, key=None, sent=sent)
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json["code"] == "invalid_api_key"
            bodies.add(refused.body)
        assert len(bodies) == 1
        for name in ("x-api-key", "authorization"):
            value = KEY if name == "x-api-key" else f"Bearer {KEY}"
            raw = await gateway.raw(
                f"POST {INFER} HTTP/1.1\r\nhost: a\r\n{name}: {value}\r\n{name}: {value}\r\n"
                "content-length: 0\r\n\r\n"
            )
            assert raw.startswith(b"HTTP/1.1 401 ")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await gateway.call("ModelInfer", VISION, key=None)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert len(seen_by(nodes)) == 2


async def test_keys_of_every_length_up_to_api_key_length_are_hashed_right(tmp_path: Path) -> None:
    lengths = (1, 55, 56, 63, 64, 65, 119, 120, limits.API_KEY_LENGTH)
    keys = {length: "k" * length for length in (*lengths, limits.API_KEY_LENGTH + 1)}
    hashes = tuple(sorted(hashlib.sha256(key.encode()).hexdigest() for key in keys.values()))
    made = mesh(
        served("vision", 1),
        route("vision", "vision", *ALWAYS),
        port=0,
        tenants=(ir.Tenant("many", "critical", hashes),),
    )
    async with mesh_node("n") as node, mesh_gateway(tmp_path, made, [node]) as gateway:
        await gateway.healthy("m-vision-1-http", 1)
        for length in lengths:
            assert (await gateway.send(INFER, key=keys[length])).status == 200, length
        assert (await gateway.send(INFER, key=keys[limits.API_KEY_LENGTH + 1])).status == 401


async def test_health_needs_no_key_and_metadata_does(tmp_path: Path) -> None:
    async with running(tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS)) as (
        gateway,
        nodes,
    ):
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/vision/ready"):
            assert (await gateway.get(path, key=None)).status == 200
        assert (await gateway.get("/v2/models/vision/versions/1/ready", key=None)).status == 200
        assert (await gateway.get("/v2", key=None)).status == 401
        assert (await gateway.get("/v2/models/vision", key=None)).status == 401
        assert (await gateway.get("/v2")).status == 200
        for method, message in (("ServerLive", b""), ("ServerReady", b""), ("ModelReady", VISION)):
            await gateway.call(method, message, key=None)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await gateway.call("ServerMetadata", b"", key=None)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await gateway.call("ServerMetadata", b"")
        assert all(headers.TENANT not in seen.headers for seen in nodes[0].of("x"))


async def test_bodies_of_10_mb_pass_and_larger_ones_are_refused(tmp_path: Path) -> None:
    parts: list[Part] = [
        served("vision", 1, shadow_max_requests=4),
        route("vision", "vision", *ALWAYS, mirror=ir.Mirror(1, 100)),
    ]
    largest = 10 * 2**20
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        assert (await gateway.send(INFER, body=bytes(largest))).status == 200
        assert node.seen[0].body_bytes == largest
        await gateway.call("ModelInfer", VISION + long_field(7, largest))
        # The name behind the tensors: only tags and lengths are read on the way to it.
        await gateway.call("ModelInfer", long_field(7, largest) + VISION)
        before = len(node.seen)
        refused = await gateway.send(INFER, body=bytes(limits.BODY_BYTES + 1))
        assert (refused.status, refused.json["code"]) == (413, "request_too_large")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await gateway.call("ModelInfer", VISION + long_field(7, limits.BODY_BYTES))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not [seen for seen in node.seen[before:] if headers.SHADOW not in seen.headers]


async def test_past_heap_bytes_new_requests_are_refused_until_memory_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAP_BYTES", 64 * 2**20)
    parts: list[Part] = [served("vision", 1), route("vision", "vision", *ALWAYS)]
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        released = asyncio.Event()
        node.behave = lambda seen: Answer(after=released) if seen.body_bytes > 100 else OK

        async def small(status: int) -> bool:
            return (await gateway.send(INFER)).status == status

        try:
            async with asyncio.TaskGroup() as tasks:
                held = [
                    tasks.create_task(gateway.send(INFER, body=bytes(10 * 2**20))) for _ in range(7)
                ]
                await until(lambda: small(503), what="refusal")
                refused = await gateway.send(INFER)
                assert refused.json["code"] == "overloaded"
                assert refused.headers["retry-after"]
                released.set()
        finally:
            released.set()
        assert {each.result().status for each in held} <= {200, 503}
        await until(lambda: small(200), what="recovery")


async def test_a_hostile_message_is_refused_and_the_next_one_served(tmp_path: Path) -> None:
    async with running(
        tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS), nodes=1
    ) as (gateway, [node]):
        hostile = [
            b"\x0a", b"\x0a\xff", b"\x0a\xff\xff\xff\xff\x7fx", b"\xff" * 30, b"\x00", b"\x0b\x0c",
            b"\x0a\x06visio", b"\x08" + b"\xff" * 20, b"\x0d\x01", b"\x1a\x00" * 2_000,
        ]  # fmt: skip
        for message in hostile:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await gateway.call("ModelInfer", message)
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT, message
        framed = struct.pack(">BI", 1, len(VISION)) + VISION
        reply = await gateway.grpc_bytes("ModelInfer", framed)
        assert reply.headers["grpc-status"] == "3"
        reply = await gateway.grpc_bytes("ModelInfer", framed[1:])
        assert reply.headers["grpc-status"] == "3"
        assert node.seen == []
        await gateway.call("ModelInfer", VISION)


async def test_a_stream_ends_after_stream_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_DURATION_S", 0.5)
    parts: list[Part] = [served("vision", 1), route("vision", "vision", *ALWAYS)]
    async with running(tmp_path, *parts, nodes=1) as (gateway, _):
        metadata = [("x-api-key", KEY), ("headrace-model", "vision")]
        call = gateway.stream(metadata)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_h01_identity_headers_of_a_caller_are_dropped(tmp_path: Path) -> None:
    async with running(
        tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS), nodes=1
    ) as (gateway, [node]):
        forged = dict.fromkeys(headers.STRIPPED, "forged")
        forged["x-envoy-max-retries"] = "9"
        forged["x-envoy-upstream-rq-timeout-ms"] = "1"
        assert (await gateway.send(INFER, sent=forged)).status == 200
        assert "forged" not in node.seen[-1].headers.values()
        assert node.seen[-1].headers[headers.TENANT] == "demo"
        # A forged tenant is no substitute for a key, and a forged pin or cluster is no route.
        assert (await gateway.send(INFER, key=None, sent=forged)).status == 401
        assert "endpoint-load-metrics" not in (await gateway.send(INFER)).headers


async def test_h02_h04_h07_malformed_requests_reach_no_node(tmp_path: Path) -> None:
    async with running(
        tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS), nodes=1
    ) as (gateway, [node]):
        start = f"POST {INFER} HTTP/1.1\r\nhost: a\r\nx-api-key: {KEY}\r\n"
        smuggled = f"0\r\n\r\nPOST {INFER} HTTP/1.1\r\nhost: a\r\nx-api-key: {KEY}\r\n\r\n"
        lines = "".join(f"x-{index}: 1\r\n" for index in range(101))
        cases = {
            "H02 underscore": (f"{start}x_headrace_tenant: o\r\ncontent-length: 0\r\n\r\n", 400),
            "H04 two lengths": (
                f"{start}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n{smuggled}", 400),
            "H07 long": (f"{start}x-long: {'a' * 62_464}\r\ncontent-length: 0\r\n\r\n", 431),
            "H07 many": (f"{start}{lines}content-length: 0\r\n\r\n", 431),
        }  # fmt: skip
        for case, (request, status) in cases.items():
            answer = await gateway.raw(request)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (case, answer[:200])
        assert node.seen == []


async def test_h14_tricky_paths_are_normalised_or_refused(tmp_path: Path) -> None:
    async with running(
        tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS), nodes=1
    ) as (gateway, [node]):
        for path, status in (
            ("/v2/health/../models/vision/infer", 401),
            ("//v2///models/vision/infer", 401),
            ("/v2/models/x/%2e%2e/vision/infer", 401),
            ("/v2/health/live/..%2f..%2fmodels/vision/infer", 400),
            ("/v2/models/vision%2Finfer", 400),
            ("/v2/models/vision%5Cinfer", 400),
        ):
            answer = await gateway.raw(
                f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
            )
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (path, answer[:200])
        assert node.seen == []


async def test_h08_h09_slow_requests_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_xds.translate.listeners.REQUEST_HEADERS_S", 0.3)
    monkeypatch.setattr(limits, "REQUEST_DEADLINE_S", 0.2)
    monkeypatch.setattr(limits, "UPLOAD_S", 0.3)
    parts: list[Part] = [served("vision", 1), route("vision", "vision", *ALWAYS, timeout_s=0.2)]
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        start = f"POST {INFER} HTTP/1.1\r\nhost: a\r\nx-api-key: {KEY}\r\n"
        assert (await gateway.raw(start)).startswith(b"HTTP/1.1 408 ")
        slow = await gateway.raw(f"{start}content-length: 100\r\n\r\nbegin")
        assert slow.startswith(b"HTTP/1.1 408 ")
        assert node.seen == []
