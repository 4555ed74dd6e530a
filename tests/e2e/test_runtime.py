"""Overrides of the whole mesh on the real Envoy: live at once, and nothing else moves."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from envoy.service.runtime.v3 import rtds_pb2

from headrace import ir
from headrace_xds.translate import resources, runtime
from headrace_xds.translate.resources import resource
from tests.fakes.ads_recorder import until
from tests.fakes.control_world import ControlWorld
from tests.fakes.mesh_gateway import ALWAYS, INFER, MeshGateway, running
from tests.fakes.mesh_ir import mesh, route, served
from tests.fakes.mesh_node import REFUSE, SICK

pytestmark = pytest.mark.e2e

PARTS = (
    served("vision", 1),
    served("vision", 2, shadow_max_requests=16),
    route("vision", "vision", *ALWAYS, mirror=ir.Mirror(2, 100)),
)
COPIES = "cluster.s-vision-2-http.upstream_rq_total"


def overriding(**values: Any) -> ir.Mesh:
    return mesh(*PARTS, port=0, runtime=ir.Runtime(**values))


async def shown(gateway: MeshGateway, key: str, value: str | None) -> None:
    async def is_shown() -> bool:
        return (await gateway.overrides()).get(key) == value

    await until(is_shown, what=f"{key} is {value}")


async def test_copies_stop_at_once_and_no_other_resource_moves(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS) as (gateway, nodes):
        assert (await gateway.send(INFER)).status == 200
        await until(lambda: any(node.of(2) for node in nodes), what="a copy")
        before = await gateway.updates()
        gateway.publish(overriding(mirror_percent=0), nodes)
        await shown(gateway, runtime.MIRROR_PERCENT, "0")
        copies = await gateway.stat(COPIES)
        for _ in range(8):
            assert (await gateway.send(INFER)).status == 200
        assert await gateway.stat(COPIES) == copies
        assert len(before) >= 4
        assert await gateway.updates() == before

        gateway.publish(overriding(), nodes)
        await shown(gateway, runtime.MIRROR_PERCENT, None)
        assert (await gateway.send(INFER)).status == 200

        async def is_copied() -> bool:
            return await gateway.stat(COPIES) > copies

        await until(is_copied, what="a copy again")


async def test_rate_limits_can_be_lifted_and_are_back_without_a_new_bucket(tmp_path: Path) -> None:
    limit = ir.RateLimit(requests=1, per_s=600, burst=1)
    parts = (served("vision", 1), route("vision", "vision", *ALWAYS, rate_limit=limit))
    async with running(tmp_path, *parts) as (gateway, nodes):
        first = [(await gateway.send(INFER)).status for _ in range(2)]
        assert first == [200, 429]
        lifted = ir.Runtime(rate_limit_percent=0)
        gateway.publish(mesh(*parts, port=0, runtime=lifted), nodes)
        await shown(gateway, runtime.RATE_LIMIT_PERCENT, "0")
        assert {(await gateway.send(INFER)).status for _ in range(4)} == {200}
        gateway.publish(mesh(*parts, port=0), nodes)
        await shown(gateway, runtime.RATE_LIMIT_PERCENT, None)
        assert (await gateway.send(INFER)).status == 429


async def test_retries_can_be_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS[:1], route("vision", "vision", *ALWAYS)) as (
        gateway,
        [full, free],
    ):
        full.behave = lambda _: REFUSE
        assert {(await gateway.send(INFER)).status for _ in range(4)} == {200}
        gateway.publish(overriding(retry_percent=0), [full, free])
        await shown(gateway, runtime.RETRY_PERCENT, "0")
        statuses = [(await gateway.send(INFER)).status for _ in range(4)]
        assert sorted(statuses) == [200, 200, 503, 503]


async def test_ejections_can_be_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS[:1], route("vision", "vision", *ALWAYS)) as (
        gateway,
        [sick, well],
    ):
        gateway.publish(overriding(ejection_percent=0), [sick, well])
        for key in runtime.EJECTION_PERCENT:
            await shown(gateway, key, "0")
        sick.behave = lambda _: SICK
        statuses = [(await gateway.send(INFER)).status for _ in range(16)]
        assert statuses.count(500) == 8
        stat = "cluster.m-vision-1-http.outlier_detection.ejections_enforced_total"
        assert await gateway.stat(stat) == 0


async def test_a_layer_that_envoy_refuses_leaves_the_one_before(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS) as (gateway, nodes):
        gateway.publish(overriding(mirror_percent=0), nodes)
        await shown(gateway, runtime.MIRROR_PERCENT, "0")
        bad = rtds_pb2.Runtime(name=runtime.LAYER)
        bad.layer[runtime.MIRROR_PERCENT] = None
        body = bad.SerializeToString()
        gateway.publish_only(resources.RUNTIME, resource(resources.RUNTIME, runtime.LAYER, body))
        await until(lambda: bool(gateway.recorder.nacks), what="a refusal")
        ((type_url, names, text),) = gateway.recorder.nacks
        assert (type_url, names) == (resources.RUNTIME, (runtime.LAYER,))
        assert runtime.MIRROR_PERCENT in text
        assert (await gateway.overrides())[runtime.MIRROR_PERCENT] == "0"
        assert (await gateway.send(INFER)).status == 200


async def test_an_edit_of_the_mesh_is_live_and_a_mistake_in_it_changes_nothing(
    tmp_path: Path,
) -> None:
    async with ControlWorld(tmp_path) as world:
        await world.up("n1")
        text = (world.config / "mesh.yaml").read_text()

        async def settled(override: str, check: Callable[[dict[str, Any]], bool]) -> None:
            world.write("mesh.yaml", text.replace("  regions:", f"  {override}\n  regions:", 1))

            async def reached() -> bool:
                return check(await world.admin("/v1/generation"))

            await until(reached, what=override)

        before = await world.generation()
        await settled("runtime: {retryPercent: 30}", lambda now: now["generation"] > before)
        await until(lambda: _override(world, runtime.RETRY_PERCENT, "30"), what="30 % in Envoy")
        await settled("runtime: {retryPercent: 130}", lambda now: not now["accepted"])
        await settled("runtime: {retrysPercent: 0}", lambda now: not now["accepted"])
        assert await _override(world, runtime.RETRY_PERCENT, "30")
        async with world.under_load():
            await asyncio.gather(*(world.infer() for _ in range(8)))


async def _override(world: ControlWorld, key: str, value: str) -> bool:
    found = (await world.envoy_page("/runtime"))["entries"].get(key, {})
    return bool(found.get("final_value") == value)
