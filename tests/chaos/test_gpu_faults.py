"""Faults on one GPU node: dead and hung model processes, a dead Triton, nothing there at all."""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2

from headrace import headers, limits
from headrace.assignment import Assignment
from tests.fakes.sidecar_assignments import identity
from tests.fakes.sidecar_world import SidecarWorld, until

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module")]

NOTICED_S = 5.0
"""Three seconds are the goal; the machine of a test may be busy with other things."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[SidecarWorld]:
    async with SidecarWorld() as made:
        await made.start_control()
        await made.start_model_server()
        await made.start_sidecar()
        yield made


async def test_a_killed_stub_is_noticed_by_the_next_request_and_replaced(
    world: SidecarWorld,
) -> None:
    killed = identity("killed")
    await world.ready(killed)
    os.kill(world.stub(killed), signal.SIGKILL)
    status, answer = await world.infer(killed)
    assert (status, answer["code"]) == (503, "not_ready")
    await until(lambda: _works(world, killed), world.log)


async def _works(world: SidecarWorld, assignment: Assignment) -> bool:
    return (await world.infer(assignment))[0] == 200


async def test_a_model_that_kills_its_process_is_repaired(world: SidecarWorld) -> None:
    crashing = identity("crashing")
    await world.ready(crashing)
    status, _ = await world.infer(crashing, "crash")
    assert status in (502, 503)
    await until(lambda: _works(world, crashing), world.log)


async def test_a_hung_stub_is_unready_soon_and_its_callers_may_go_elsewhere(
    world: SidecarWorld,
) -> None:
    hung = identity("hung")
    await world.ready(hung)
    os.kill(world.stub(hung), signal.SIGSTOP)
    started_s = time.monotonic()
    answers = await asyncio.gather(*(_retry_advice(world, hung) for _ in range(6)))
    assert time.monotonic() - started_s < NOTICED_S
    assert set(answers) == {headers.RETRY_SAFE}
    await until(lambda: _works(world, hung), world.log)
    # What was left behind in the dead process is nobody's load.
    await until(lambda: _is_idle(world, hung), world.log)


async def _retry_advice(world: SidecarWorld, assignment: Assignment) -> str:
    tensor = {"name": "data", "datatype": "BYTES", "shape": [1], "data": ["x"]}
    url = world.url(assignment, "infer")
    async with world.http.post(url, json={"inputs": [tensor]}) as response:
        assert response.status in (502, 503)
        return response.headers[headers.RETRY]


async def _is_idle(world: SidecarWorld, assignment: Assignment) -> bool:
    page = await world.page()
    labels = f'{{model="{assignment.model}",version="{assignment.version}"}}'
    gauges = ("queue_depth", "running")
    return all(f"headrace_{gauge}{labels} 0.0" in page for gauge in gauges)


async def test_a_hung_stub_that_nobody_uses_is_found_by_a_probe(world: SidecarWorld) -> None:
    idle = identity("idle")
    await world.ready(idle)
    stub = world.stub(idle)
    os.kill(stub, signal.SIGSTOP)
    await until(lambda: _unready(world, idle), world.log, deadline_s=20.0)
    await until(lambda: world.answers(idle), world.log)
    assert world.stub(idle) != stub


async def _unready(world: SidecarWorld, assignment: Assignment) -> bool:
    return not await world.answers(assignment)


async def test_a_saturated_version_is_not_judged_hung(world: SidecarWorld) -> None:
    busy = identity("busy", delay_ms="100")
    await world.ready(busy)
    stub, until_s = world.stub(busy), time.monotonic() + 5.0

    async def call() -> set[int]:
        statuses = set()
        while time.monotonic() < until_s:
            statuses.add((await world.infer(busy))[0])
        return statuses

    async with asyncio.TaskGroup() as callers:
        tasks = [callers.create_task(call()) for _ in range(24)]
    assert set().union(*(task.result() for task in tasks)) == {200}
    assert world.stub(busy) == stub


async def test_work_from_outside_the_mesh_is_load_and_no_illness(world: SidecarWorld) -> None:
    """Whoever asks Triton directly takes capacity away, and the node's signals say so."""
    shared = identity("shared", delay_ms="50")
    await world.ready(shared)
    stub = world.stub(shared)
    await world.infer(shared)
    async with grpc.aio.insecure_channel(
        f"unix:{(await world.triton())['grpc_socket']}"
    ) as channel:
        unary: Any = channel.unary_unary
        infer = unary("/inference.GRPCInferenceService/ModelInfer")
        async with asyncio.TaskGroup() as others:
            # Two seconds of queue before every golden question, for longer than a probe waits.
            tasks = [others.create_task(_keep_busy(infer)) for _ in range(40)]
            await until(lambda: _utilization_is(world, 1.0, 99.0), world.log)
            await asyncio.sleep(limits.PROBE_PERIOD_S + limits.PROBE_S)
            assert await world.answers(shared)
            for task in tasks:
                task.cancel()
    assert world.stub(shared) == stub
    await until(lambda: _utilization_is(world, 0.0, 0.2), world.log)


async def _keep_busy(infer: Callable[[bytes], Awaitable[object]]) -> None:
    request = service_pb2.ModelInferRequest(model_name="shared.1")
    request.inputs.add(name="data", datatype="BYTES", shape=[1])
    request.raw_input_contents.append(b"\x01\x00\x00\x00x")
    while True:
        await infer(request.SerializeToString())


async def _utilization_is(world: SidecarWorld, least: float, most: float) -> bool:
    found = re.search(
        r'headrace_utilization_ratio{model="shared",version="1"} (\S+)', await world.page()
    )
    return found is not None and least <= float(found[1]) <= most


async def test_a_killed_triton_is_loaded_anew_without_the_control_server(
    world: SidecarWorld,
) -> None:
    loaded = identity("reloaded")
    await world.ready(loaded)
    await world.stop_control()
    before = await world.triton()
    os.kill(before["pid"], signal.SIGKILL)
    await until(lambda: _unready(world, loaded), world.log)
    await until(lambda: _works(world, loaded), world.log)
    assert (await world.triton())["incarnation"] > before["incarnation"]
    await world.start_control()
    await world.acked(loaded)


async def test_a_model_server_that_comes_back_finds_its_versions_loaded_again(
    world: SidecarWorld,
) -> None:
    loaded = identity("returned")
    await world.ready(loaded)
    await world.stop_model_server()
    await until(lambda: _unready(world, loaded), world.log)
    await world.start_model_server()
    await until(lambda: _works(world, loaded), world.log)


async def test_a_sidecar_starts_with_nothing_around_it_and_catches_up() -> None:
    alone = identity("alone")
    async with SidecarWorld() as world:
        await world.start_control()
        await world.stop_control()
        await world.start_sidecar()
        async with world.http.get(
            f"http://127.0.0.1:{world.ports['http']}/v2/health/ready"
        ) as response:
            assert response.status == 503
        assert "headrace_triton_up 0.0" in await world.page()
        world.want(alone)
        await world.start_control()
        await until(lambda: _entered(world), world.log)
        assert not world.control.refusals
        await world.start_model_server()
        await world.acked(alone)
        assert (await world.infer(alone))[0] == 200


async def _entered(world: SidecarWorld) -> bool:
    return 'headrace_assignments{state="waiting"} 1.0' in await world.page()
