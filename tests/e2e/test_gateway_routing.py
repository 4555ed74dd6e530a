"""Translated routes on the real Envoy: models, pins, splits, mirrors, matches, limits."""

import asyncio
from pathlib import Path

import grpc
import pytest

from headrace import headers, ir
from tests.fakes.ads_recorder import until
from tests.fakes.mesh_gateway import (
    ALWAYS,
    INFER,
    VISION,
    Part,
    running,
)
from tests.fakes.mesh_ir import KEY, mesh, route, served
from tests.fakes.mesh_node import OK, SICK, Answer

pytestmark = pytest.mark.e2e


async def test_model_and_version_are_found_where_the_protocol_puts_them(tmp_path: Path) -> None:
    parts: list[Part] = [
        served("vision", 1), served("vision", 2), served("vision2", 1),
        route("vision", "vision", *ALWAYS), route("vision2", "vision2", *ALWAYS),
    ]  # fmt: skip
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):

        async def arrives(model: str, version: str) -> None:
            seen = node.seen.pop()
            assert (seen.headers[headers.MODEL], seen.version) == (model, version)
            assert headers.CLUSTER not in seen.headers

        for path, model, version in (
            (INFER, "vision", "1"),
            ("/v2/models/vision", "vision", "1"),
            ("/v2/models/vision?x=/versions/2", "vision", "1"),
            ("/v2/models/vision/versions/2/infer", "vision", "2"),
            ("/v2/models/vision2/infer", "vision2", "1"),
        ):
            assert (await gateway.send(path)).status == 200
            await arrives(model, version)
        assert (await gateway.send(INFER, sent={"headrace-version": "2"})).status == 200
        await arrives("vision", "2")

        for message, version in (
            (VISION, "1"),
            (VISION + b"\x12\x012", "2"),
            (b"\x12\x012" + VISION, "2"),
            (b"\x0a\x05other" + b"\x1a\x02id" + VISION, "1"),
            (b"\x08\x07" + VISION + b"\x35\0\0\0\0\x39\0\0\0\0\0\0\0\0", "1"),
        ):
            await gateway.call("ModelInfer", message)
            await arrives("vision", version)

        for path in ("/v2/models/visio/infer", "/v2/models/vision/versions/3/infer",
                     "/v2/models/vision/versions/x/infer", "/v2/models/VI%53ION/infer",
                     f"/v2/models/{'v' * 64}/infer"):  # fmt: skip
            refused = await gateway.send(path)
            assert (refused.status, refused.json["code"]) == (404, "model_not_found")
        assert (await gateway.send("/v1/else")).json["code"] == "not_found"
        for message in (b"", b"\x0a\x01x", VISION + b"\x12\x013", b"\x0a\x06vis\non"):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await gateway.call("ModelInfer", message)
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await gateway.call("RepositoryIndex", b"")
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert node.seen == []


async def test_a_stream_goes_by_its_headers_and_outlives_the_route_timeout(tmp_path: Path) -> None:
    parts: list[Part] = [served("vision", 1), served("vision", 2)]
    parts.append(route("vision", "vision", *ALWAYS, timeout_s=0.2))
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        metadata = [("x-api-key", KEY), ("headrace-model", "vision"), ("headrace-version", "2")]
        call = gateway.stream(metadata)
        for body in (b"first", b"second"):
            # Longer than the route lets a unary answer take, with nothing received meanwhile.
            await asyncio.sleep(0.5)
            await call.write(body)
            assert await call.read() == body
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
        assert node.seen[-1].version == "2"


async def test_a_split_is_sticky_by_its_header_and_growth_moves_only_the_new_share(
    tmp_path: Path,
) -> None:
    versions = (served("vision", 1), served("vision", 2))
    users = [f"user-{index}" for index in range(400)]

    def split(canary: int) -> ir.Route:
        arms = ((1, 10_000 - canary), (2, canary))
        return route("vision", "vision", *arms, sticky_header="x-user")

    async with running(tmp_path, *versions, split(500), nodes=1) as (gateway, [node]):

        async def sides() -> dict[str, str]:
            node.seen.clear()
            await gateway.many(INFER, [{"x-user": user} for user in users])
            return {seen.headers["x-user"]: seen.version for seen in node.seen}

        before = await sides()
        assert before == await sides()
        assert 5 <= sum(side == "2" for side in before.values()) <= 42

        gateway.publish(mesh(*versions, split(2_000), port=0), [node])
        await gateway.settle()
        after = await sides()
        assert all(after[user] == "2" for user, side in before.items() if side == "2")
        assert 50 <= sum(side == "2" for side in after.values()) <= 115

        node.seen.clear()
        await gateway.many(INFER, [{}] * 300)
        assert 25 <= len(node.of(2)) <= 100


async def test_a_mirror_gets_copies_that_change_nothing_for_callers(tmp_path: Path) -> None:
    parts: list[Part] = [
        served("vision", 1),
        served("vision", 2, shadow_max_requests=2),
        route("vision", "vision", *ALWAYS, mirror=ir.Mirror(2, 100)),
    ]
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        node.behave = lambda seen: SICK if headers.SHADOW in seen.headers else OK
        for _ in range(10):
            reply = await gateway.send(INFER)
            assert (reply.status, reply.json["version"]) == (200, "1")
        await gateway.call("ModelInfer", VISION)
        await until(lambda: len(node.of(2)) >= 5, what="copies")
        for copy in node.of(2):
            assert copy.headers[headers.SHADOW] == "1"
            assert copy.headers.get("host", "").count("-shadow") == 0
        assert all(headers.SHADOW not in seen.headers for seen in node.of(1))
        # Another cluster, so other hosts: the version's own traffic is not ejected.
        await gateway.healthy("m-vision-2-http", 1)


async def test_copies_beyond_the_mirrors_limit_are_dropped_and_slow_ones_hold_nobody(
    tmp_path: Path,
) -> None:
    parts: list[Part] = [
        served("vision", 1),
        served("vision", 2, shadow_max_requests=2),
        route("vision", "vision", *ALWAYS, mirror=ir.Mirror(2, 100)),
    ]
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        released = asyncio.Event()
        stuck = Answer(after=released)
        node.behave = lambda seen: stuck if headers.SHADOW in seen.headers else OK
        try:
            await gateway.many(INFER, [{}] * 12)
            assert len(node.of(1)) == 12
            assert len(node.of(2)) <= 2
            overflow = "cluster.s-vision-2-http.upstream_rq_pending_overflow"
            assert await gateway.stat(overflow) >= 6
        finally:
            released.set()


async def test_a_route_is_matched_by_headers_and_host_and_limited_across_protocols(
    tmp_path: Path,
) -> None:
    parts: list[Part] = [
        served("vision", 1),
        served("vision", 2),
        route(
            "beta",
            "vision",
            (2, 10_000),
            headers=(("x-beta", "1"),),
            hosts=("beta.example", "*.b.example"),
            rate_limit=ir.RateLimit(requests=3, per_s=60.0, burst=3),
        ),
        route("vision", "vision", *ALWAYS),
    ]
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        for sent in (
            {},
            {"x-beta": "1"},
            {"host": "beta.example"},
            {"x-beta": "1", "host": "b.example"},
            {"x-beta": "2", "host": "beta.example"},
        ):
            assert (await gateway.send(INFER, sent=sent)).json["version"] == "1"
        for host in ("beta.example", "A.B.example:80"):
            assert (await gateway.send(INFER, sent={"x-beta": "1", "host": host})).json[
                "version"
            ] == "2"
        pinned = await gateway.send(
            "/v2/models/vision/versions/1/infer", sent={"x-beta": "1", "host": "beta.example"}
        )
        assert pinned.json["version"] == "1"
        before = len(node.seen)
        limited = await gateway.send(INFER, sent={"x-beta": "1", "host": "beta.example"})
        assert (limited.status, limited.json["code"]) == (429, "quota_exceeded")
        assert int(limited.headers["retry-after"]) >= 1
        assert len(node.seen) == before
        # A change of another route leaves the bucket as empty as it was.
        moved: list[Part] = [*parts[:3], route("vision", "vision", (1, 9_999), (2, 1))]
        gateway.publish(mesh(*moved, port=0), [node])
        await gateway.settle()
        assert (
            await gateway.send(INFER, sent={"x-beta": "1", "host": "beta.example"})
        ).status == 429


async def test_a_listener_never_changes_while_everything_else_does(tmp_path: Path) -> None:
    first: list[Part] = [served("vision", 1), route("vision", "vision", *ALWAYS)]
    async with running(tmp_path, *first, nodes=1) as (gateway, nodes):
        listeners = await gateway.stat("listener_manager.listener_modified")
        other = ir.Tenant("other", "critical", ("ab" * 32,))
        second = mesh(
            served("vision", 1),
            served("ranking", 1, balance="utilization"),
            route("vision", "vision", *ALWAYS, rate_limit=ir.RateLimit(1, 60.0, 1)),
            route("ranking", "ranking", *ALWAYS),
            port=0,
            tenants=(other,),
        )
        gateway.publish(second, nodes)
        await gateway.settle()
        assert (await gateway.send(INFER)).status == 401
        assert await gateway.stat("listener_manager.listener_modified") == listeners == 0
