"""The GPU sidecar against real Triton, the real model server and the real ADS server."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from headrace import headers, limits, names
from headrace.policy.utilization import RPS_SCALE
from tests.fakes.sidecar_assignments import identity
from tests.fakes.sidecar_world import SidecarWorld, load_reports, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[SidecarWorld]:
    async with SidecarWorld() as made:
        await made.start_control()
        await made.start_model_server()
        await made.start_sidecar()
        yield made


def metric(page: str, name: str, **labels: str) -> float:
    """Value of a sample on a metrics page; 0 where there is none."""
    for found, given, value in re.findall(r"(?m)^(\w+)(?:\{(.*)\})? (\S+)$", page):
        if found == name and dict(re.findall(r'(\w+)="([^"]*)"', given)) == labels:
            return float(value)
    return 0.0


async def loads(world: SidecarWorld, model: str) -> float:
    """How often a model was loaded by this sidecar."""
    return metric(
        await world.page(),
        "headrace_lifecycle_transitions_total",
        model=model,
        version="1",
        state="checking",
    )


async def test_an_assigned_version_is_acknowledged_once_it_answers(world: SidecarWorld) -> None:
    first = identity("first")
    await world.ready(first)
    assert await world.infer(first) == (
        200,
        {
            "model_name": "first",
            "model_version": "1",
            "outputs": [{"name": "data", "datatype": "BYTES", "shape": [1], "data": ["hello"]}],
        },
    )


async def test_a_node_registers_with_its_sockets_and_an_honest_inventory(
    world: SidecarWorld,
) -> None:
    node = world.control.node
    assert node is not None
    assert (node.id, node.region, node.zone) == ("gpu/n1", "eu", "eu-1")
    told = dict(node.metadata)
    inventory = told.pop("inventory")
    assert told == {
        "role": "gpu",
        "node": "n1",
        "pool": "test",
        "address": "127.0.0.1",
        "http_port": world.ports["http"],
        "grpc_port": world.ports["grpc"],
        "orca_port": world.ports["orca"],
    }
    assert inventory["type"] == "cpu" or inventory["count"] > 0
    assert inventory["memory_bytes"] > 2**30


async def test_a_version_that_cannot_be_placed_is_refused_with_the_reason(
    world: SidecarWorld,
) -> None:
    unknown = msgspec.structs.replace(identity("unknown"), executor="alchemy")
    world.want(unknown)
    await until(lambda: "unknown@1" in world.control.refusals, world.log)
    assert "alchemy" in world.control.refusals["unknown@1"]
    world.want_no_more(unknown)
    await until(lambda: "unknown@1" in world.control.removed, world.log)


async def test_a_version_that_triton_cannot_load_is_refused_in_triton_s_words(
    world: SidecarWorld,
) -> None:
    broken = identity("broken", delay_ms="soon")
    world.want(broken)
    await until(lambda: "broken@1" in world.control.refusals, world.log)
    assert "could not convert string to float" in world.control.refusals["broken@1"]
    mended = identity("broken", attempt=1)
    await world.ready(mended)
    assert (await world.infer(mended))[0] == 200


async def test_a_version_that_loads_but_fails_its_first_question_is_never_ready(
    world: SidecarWorld,
) -> None:
    # Triton loads it without complaint, and it raises when it is asked: nobody sleeps so long.
    unsound = identity("unsound", delay_ms="-1")
    answered = []

    async def refused() -> bool:
        answered.append(await world.answers(unsound))
        return "unsound@1" in world.control.refusals

    world.want(unsound)
    await until(refused, world.log)
    assert "sleep length must be non-negative" in world.control.refusals["unsound@1"]
    assert not any(answered)
    assert "unsound@1" not in world.control.held
    assert (await world.infer(unsound))[0] == 503
    entered = {"model": "unsound", "version": "1", "state": "ready"}
    assert metric(await world.page(), "headrace_lifecycle_transitions_total", **entered) == 0
    sound = identity("unsound", attempt=1)
    await world.ready(sound)
    assert (await world.infer(sound))[0] == 200


async def test_a_port_that_is_taken_ends_the_program_with_its_name(world: SidecarWorld) -> None:
    for door in ("http", "grpc"):
        status, said = await world.second_sidecar(f"--{door}-port", str(world.ports[door]))
        assert status == 1
        assert str(world.ports[door]) in said
        assert "Traceback" not in said


async def test_equal_content_offered_again_is_acknowledged_without_a_reload(
    world: SidecarWorld,
) -> None:
    again = identity("again")
    await world.ready(again)
    version, count = world.control.held["again@1"], await loads(world, "again")
    world.want(identity("again", attempt=1))
    await until(lambda: world.control.held["again@1"] != version, world.log)
    assert await loads(world, "again") == count


async def test_a_removed_version_is_unloaded_before_the_removal_is_acknowledged(
    world: SidecarWorld,
) -> None:
    passing = identity("passing")
    await world.ready(passing)
    world.want_no_more(passing)
    await until(lambda: "passing@1" in world.control.removed, world.log)
    async with world.http.get(world.url(passing, "ready")) as response:
        assert (response.status, (await response.json())["code"]) == (404, "model_not_found")
    await until(lambda: not world.stubs(passing), world.log)


async def test_an_update_loses_no_request(world: SidecarWorld) -> None:
    old = identity("updated")
    await world.ready(old)
    version, statuses, done = world.control.held["updated@1"], [], False

    async def call() -> None:
        while not done:
            statuses.append((await world.infer(old))[0])

    async with asyncio.TaskGroup() as callers:
        for _ in range(3):
            callers.create_task(call())
        world.want(identity("updated", delay_ms="1"))
        await until(lambda: world.control.held.get("updated@1") != version, world.log)
        await world.acked(old)
        done = True
    assert set(statuses) == {200}
    assert len(statuses) > 3


async def test_a_refused_update_leaves_the_old_content_serving(world: SidecarWorld) -> None:
    good = identity("steady")
    await world.ready(good)
    world.want(msgspec.structs.replace(good, executor="alchemy"))
    await until(lambda: "steady@1" in world.control.refusals, world.log)
    await until(lambda: world.answers(good), world.log)
    assert (await world.infer(good))[0] == 200
    world.want_no_more(good)
    await until(lambda: "steady@1" in world.control.removed, world.log)


async def test_load_reports_are_fresh_and_scaled_to_envoys_unit(world: SidecarWorld) -> None:
    loaded = identity("loaded", delay_ms="20")
    await world.ready(loaded)
    async with load_reports(world) as read:
        for _ in range(3):
            await read()
        # Golden checks and probes are nobody's traffic.
        assert (await read()).named_metrics[names.running_metric("loaded", 1)] == 0
        callers = [asyncio.ensure_future(world.infer(loaded)) for _ in range(24)]
        seen = 0.0
        while not all(caller.done() for caller in callers):
            report = await read()
            seen = max(seen, report.named_metrics[names.running_metric("loaded", 1)])
        report = await read()
    assert seen > 4
    metrics = report.named_metrics
    assert metrics[names.ready_metric("loaded", 1)] == 1.0
    assert 0 <= metrics[names.TRITON_AGE_METRIC] < limits.SIGNAL_STALE_S
    used, rps = (metrics[key("loaded", 1)] for key in (names.utilization_metric, names.rps_metric))
    node_rps = report.rps_fractional / RPS_SCALE
    assert rps > 1
    assert limits.UTILIZATION_MIN <= used * rps / node_rps <= limits.UTILIZATION_MAX
    assert {status for status, _ in await asyncio.gather(*callers)} == {200}


async def test_a_subscriber_gets_reports_at_the_interval_it_asked_for(
    world: SidecarWorld,
) -> None:
    async with load_reports(world, interval_s=0.3) as read:
        await read()
        started_s = time.monotonic()
        for _ in range(3):
            await read()
        assert time.monotonic() - started_s > 0.8


async def test_the_metrics_page_shows_signals_with_their_ages(world: SidecarWorld) -> None:
    await world.ready(identity("shown"))
    await until(lambda: _was_read(world), world.log)
    page = await world.page()
    assert metric(page, "headrace_ready", model="shown", version="1") == 1
    assert metric(page, "headrace_control_connected") == 1
    assert metric(page, "headrace_triton_up") == 1
    assert 0 <= metric(page, "headrace_signal_age_seconds", source="node") < 2
    assert 0 <= metric(page, "headrace_signal_age_seconds", source="triton") < 5
    assert metric(page, "headrace_load_duration_seconds_count", model="shown", version="1") == 1


async def _was_read(world: SidecarWorld) -> bool:
    return 'headrace_signal_age_seconds{source="triton"}' in await world.page()


async def test_triton_s_own_metrics_pass_through(world: SidecarWorld) -> None:
    await world.ready(identity("passed"))
    await until(lambda: _names_model(world, "passed.1"), world.log)


async def _names_model(world: SidecarWorld, model: str) -> bool:
    page = await world.page("/metrics/triton")
    return "nv_inference_request_success" in page and f'model="{model}"' in page


async def test_a_control_server_that_restarts_is_told_what_is_ready(world: SidecarWorld) -> None:
    kept = identity("kept")
    await world.ready(kept)
    held, count = dict(world.control.held), await loads(world, "kept")
    await world.stop_control()
    assert (await world.infer(kept))[0] == 200
    world.control.claims.clear()
    world.control.acks.clear()
    await world.start_control()
    await until(lambda: world.control.claims, world.log)
    assert world.control.claims[-1] == held
    assert not world.control.acks
    assert await loads(world, "kept") == count


async def test_a_restarted_sidecar_takes_up_what_was_ready(world: SidecarWorld) -> None:
    survivor = identity("survivor")
    await world.ready(survivor)
    held, stub = dict(world.control.held), world.stub(survivor)
    world.signal_sidecar(signal.SIGKILL)
    await world.sidecar_ends()
    world.control.claims.clear()
    await world.start_sidecar()
    await until(lambda: world.control.claims, world.log)
    assert world.control.claims[-1] == held
    assert (await world.infer(survivor))[0] == 200
    assert world.stub(survivor) == stub


async def test_a_drain_under_load_loses_no_request(world: SidecarWorld) -> None:
    """Callers go away when health says no, as gateways do, and none of them sees an error."""
    slow = identity("slow", delay_ms="30")
    await world.ready(slow)
    statuses: list[int] = []
    leaving = False

    async def call() -> None:
        while not leaving:
            statuses.append((await world.infer(slow))[0])

    async with asyncio.TaskGroup() as callers:
        for _ in range(8):
            callers.create_task(call())
        await until(lambda: len(statuses) > 8, world.log)
        world.signal_sidecar(signal.SIGTERM)
        await until(lambda: world.control.left, world.log)
        await until(lambda: _says_no(world), world.log)
        # Health said no; who has not heard of it yet is still served.
        assert (await world.infer(slow))[0] == 200
        leaving = True
    assert set(statuses) == {200}
    assert await world.sidecar_ends() == 0
    await world.start_sidecar()
    await world.acked(slow)


async def _says_no(world: SidecarWorld) -> bool:
    async with world.http.get(f"http://127.0.0.1:{world.ports['http']}/v2/health/ready") as node:
        return node.status == 503


async def test_a_late_request_to_a_draining_node_may_go_elsewhere(world: SidecarWorld) -> None:
    slow = identity("late", delay_ms="2000")
    await world.ready(slow)
    inside = asyncio.ensure_future(world.infer(slow))
    await until(lambda: _running(world, "late"), world.log)
    world.signal_sidecar(signal.SIGTERM)
    await until(lambda: world.control.left, world.log)
    world.signal_sidecar(signal.SIGTERM)
    codes = set()
    for _ in range(20):
        try:
            async with world.http.post(world.url(slow, "infer"), json={"inputs": []}) as response:
                codes.add(
                    ((await response.json()).get("code"), response.headers.get(headers.RETRY))
                )
        except OSError:
            break
        await asyncio.sleep(0.05)
    assert ("draining", headers.RETRY_SAFE) in codes
    assert (await inside)[0] == 200
    assert await world.sidecar_ends() == 0
    await world.start_sidecar()
    await world.acked(slow)


async def _running(world: SidecarWorld, model: str) -> bool:
    return metric(await world.page(), "headrace_running", model=model, version="1") > 0
