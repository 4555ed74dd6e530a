"""Translated clusters on the real Envoy: full, sick and dead nodes, retries, regions."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from headrace import ir
from headrace_xds.translate import health
from tests.fakes.mesh_gateway import (
    ALWAYS,
    INFER,
    VISION,
    Part,
    grpc_codes,
    mesh_gateway,
    running,
)
from tests.fakes.mesh_ir import mesh, route, served
from tests.fakes.mesh_node import OK, REFUSE, REFUSE_UNSAFE, RESET, SICK, Answer, mesh_node

pytestmark = pytest.mark.e2e


async def test_a_full_node_is_tried_elsewhere_only_when_safe_and_never_ejected(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS)) as (
        gateway,
        [full, free],
    ):
        full.behave = lambda _: REFUSE
        for _ in range(12):
            assert (await gateway.send(INFER)).headers["x-node"] == free.name
            told = await gateway.call("ModelInfer", VISION)
            assert told["x-node"] == free.name
        assert len(full.seen) >= 8

        full.behave = lambda _: REFUSE_UNSAFE
        statuses = Counter([(await gateway.send(INFER)).status for _ in range(12)])
        assert statuses == {200: 6, 503: 6}
        codes = await grpc_codes(gateway, 12)
        assert codes == [grpc.StatusCode.UNAVAILABLE] * 6
        for protocol in ("http", "grpc"):
            stat = f"cluster.m-vision-1-{protocol}.outlier_detection.ejections_enforced_total"
            assert await gateway.stat(stat) == 0
            await gateway.healthy(f"m-vision-1-{protocol}", 2)


async def test_a_sick_node_is_ejected_though_its_health_check_passes(tmp_path: Path) -> None:
    async with running(tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS)) as (
        gateway,
        [sick, _],
    ):
        sick.behave = lambda _: SICK
        failed = [reply for _ in range(16) if (reply := await gateway.send(INFER)).status != 200]
        assert 1 <= len(failed) <= 6
        # Health checks run every second and pass; the node stays out all the same.
        await asyncio.sleep(1.5)
        assert {(await gateway.send(INFER)).status for _ in range(6)} == {200}
        codes = await grpc_codes(gateway, 16)
        assert set(codes) == {grpc.StatusCode.INTERNAL}
        assert len(codes) <= 6
        for protocol in ("http", "grpc"):
            stat = f"cluster.m-vision-1-{protocol}.outlier_detection.ejections_enforced_total"
            assert await gateway.stat(stat) == 1


async def test_a_request_that_may_have_run_is_repeated_only_when_idempotent(
    tmp_path: Path,
) -> None:
    parts: list[Part] = [
        served("vision", 1), served("pure", 1, idempotent=True),
        route("vision", "vision", *ALWAYS), route("pure", "pure", *ALWAYS, idempotent=True),
    ]  # fmt: skip
    async with running(tmp_path, *parts) as (gateway, [dying, _]):
        dying.behave = lambda _: RESET
        replies = [(await gateway.send(INFER)).status for _ in range(4)]
        assert sorted(replies) == [200, 200, 502, 502]
        pure = [(await gateway.send("/v2/models/pure/infer")).status for _ in range(4)]
        assert pure == [200] * 4
        dying.behave = lambda _: Answer(502, {}, grpc.StatusCode.UNAVAILABLE)
        pure = [(await gateway.send("/v2/models/pure/infer")).status for _ in range(4)]
        assert pure == [200] * 4
        for _ in range(4):
            await gateway.call("ModelInfer", b"\x0a\x04pure")


async def test_a_retry_that_changes_arms_carries_the_version_of_its_arm(tmp_path: Path) -> None:
    parts: list[Part] = [
        served("vision", 1), served("vision", 2),
        route("vision", "vision", (1, 5_000), (2, 5_000), retry=ir.Retry(3, None)),
    ]  # fmt: skip
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        node.behave = lambda seen: REFUSE if seen.version == "2" else OK
        rescued = 0
        for index in range(40):
            node.seen.clear()
            reply = await gateway.send(INFER)
            if reply.status == 200:
                assert reply.json["version"] == node.seen[-1].version == "1"
                rescued += len(node.seen) > 1
            assert index < 30 or rescued
        assert rescued >= 5


async def test_a_region_is_left_by_the_last_attempt_or_when_it_has_no_node(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(mesh_node("home"))
        away = await stack.enter_async_context(mesh_node("away"))
        away.priority = 1
        made = mesh(served("vision", 1), route("vision", "vision", *ALWAYS), port=0)
        gateway = await stack.enter_async_context(mesh_gateway(tmp_path, made, [home, away]))
        await gateway.healthy("m-vision-1-http", 2)
        await gateway.many(INFER, [{}] * 8)
        assert len(home.seen) == 8

        home.behave = lambda _: REFUSE
        for _ in range(4):
            assert (await gateway.send(INFER)).headers["x-node"] == "away"

        home.behave = lambda _: OK
        home.health = "draining"
        gateway.publish(made, [home, away])
        await gateway.settle()
        home.seen.clear()
        await gateway.many(INFER, [{}] * 8)
        assert home.seen == []


async def test_least_loaded_shares_by_the_weights_that_are_published(tmp_path: Path) -> None:
    parts: list[Part] = [
        served("vision", 1, balance="least-loaded"),
        route("vision", "vision", *ALWAYS),
    ]
    async with running(tmp_path, *parts) as (gateway, [idle, busy]):
        idle.weight, busy.weight = 12, 4
        gateway.publish(mesh(*parts, port=0), [idle, busy])
        await gateway.settle()
        # One at a time: requests in flight count against a node, whatever its weight.
        for _ in range(40):
            await gateway.send(INFER)
        assert 26 <= len(idle.seen) <= 34


async def test_a_dead_node_leaves_within_3_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without it, the first check after the first request may still be that of an idle cluster.
    monkeypatch.setattr(health, "IDLE_CHECK_INTERVAL_S", health.CHECK_INTERVAL_S)
    async with AsyncExitStack() as stack:
        stays = await stack.enter_async_context(mesh_node("stays"))
        leaves = AsyncExitStack()
        dies = await leaves.enter_async_context(mesh_node("dies"))
        made = mesh(served("vision", 1), route("vision", "vision", *ALWAYS), port=0)
        gateway = await stack.enter_async_context(mesh_gateway(tmp_path, made, [stays, dies]))
        await gateway.healthy("m-vision-1-http", 2)
        assert (await gateway.send(INFER)).status == 200
        await leaves.aclose()
        await gateway.healthy("m-vision-1-http", 1, within_s=5)
        assert {(await gateway.send(INFER)).status for _ in range(6)} == {200}


async def test_what_envoy_says_itself_has_the_mesh_own_codes(tmp_path: Path) -> None:
    parts: list[Part] = [
        served("vision", 1, max_requests=1, max_pending_requests=1),
        route("vision", "vision", *ALWAYS, timeout_s=1.0, retry=ir.Retry(0, None)),
    ]
    async with running(tmp_path, *parts, nodes=1) as (gateway, [node]):
        never = asyncio.Event()
        node.behave = lambda _: Answer(after=never)
        try:
            replies = await asyncio.gather(*(gateway.send(INFER) for _ in range(4)))
            told = {reply.json["code"]: reply for reply in replies}
            assert told.keys() == {"overloaded", "timeout"}
            assert told["overloaded"].status == 503
            assert told["overloaded"].headers["retry-after"] == "1"
            assert told["timeout"].status == 504
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await gateway.call("ModelInfer", VISION)
            assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            never.set()
        node.behave = lambda _: RESET
        gone = await gateway.send(INFER)
        assert (gone.status, gone.json["code"]) == (502, "upstream_reset")
        node.health = "unhealthy"
        gateway.publish(mesh(*parts, port=0), [node])
        await gateway.settle()
        none = await gateway.send(INFER)
        assert (none.status, none.json["code"]) == (503, "not_ready")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await gateway.call("ModelInfer", VISION)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
