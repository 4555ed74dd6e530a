"""Load reports as the control server reads them."""

import asyncio
import math

import pytest
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport

from headrace import limits, names
from headrace.signals import NodeLoad
from headrace_xds.orca import RECONNECT_S, LoadReports, next_wait_s, node_load
from tests.fakes.gpu_node import FakeGpuNode, Load


def report(rps: float, **metrics: float) -> OrcaLoadReport:
    return OrcaLoadReport(rps_fractional=rps * 1000, named_metrics=metrics)


def test_utilisation_is_brought_back_to_the_versions_own_scale() -> None:
    # 30 of the node's 40 requests a second are vision's, at a utilisation of 0.6.
    load = node_load("n", report(40, **{"u_vision_1": 0.6 * 40 / 30, "rps_vision_1": 30}), now_s=5)
    (vision,) = load.versions
    assert (load.rps, load.observed_at_s, vision.rps) == (40, 5, 30)
    assert vision.utilization == pytest.approx(0.6)


def test_a_node_that_serves_one_version_needs_no_rate_of_it() -> None:
    (vision,) = node_load("n", report(40, u_vision_1=0.5), now_s=0).versions
    assert (vision.utilization, vision.rps) == (0.5, 40)


def test_readiness_and_queues_are_read() -> None:
    metrics = {"u_my-model_12": 0.5, "ready_my-model_12": 0, "queue_my-model_12": 3}
    (load,) = node_load("n", report(1, **metrics, **{"running_my-model_12": 2}), now_s=0).versions
    assert (load.model, load.version) == ("my-model", 12)
    assert (load.ready, load.queue, load.running) == (False, 3, 2)


@pytest.mark.parametrize(
    "metrics",
    [
        {"u_vision_1": math.nan},
        {"u_vision_1": math.inf},
        {"u_vision_x": 0.1},
        {"u_vision": 0.1},
        {"u__1": 0.1},
        {"u_vision_" + "9" * 5000: 0.1},
        {"u_vision_\N{SUPERSCRIPT TWO}": 0.1},
        {"gpu": 0.5},
    ],
    ids=["NaN", "infinite", "no number", "no version", "no model", "endless", "odd digit", "other"],
)
def test_what_makes_no_sense_is_left_out(metrics: dict[str, float]) -> None:
    assert node_load("n", report(math.nan, **metrics), now_s=0).versions == ()


@pytest.mark.parametrize(
    ("reported", "read"), [({"triton_age_s": 4.5}, 4.5), ({}, 0.0), ({"triton_age_s": -1.0}, 0.0)]
)
def test_the_age_of_what_a_node_knows_of_triton_is_read(
    reported: dict[str, float], read: float
) -> None:
    assert names.TRITON_AGE_METRIC == "triton_age_s"
    load = node_load("n", report(1, u_vision_1=0.5, **reported), now_s=0)
    assert (load.triton_age_s, len(load.versions)) == (read, 1)


def test_utilisation_is_bounded() -> None:
    (load,) = node_load("n", report(1, u_vision_1=1e9), now_s=0).versions
    assert load.utilization == limits.UTILIZATION_MAX


def test_nodes_that_do_not_answer_are_asked_less_and_less_often() -> None:
    waits_s = [RECONNECT_S]
    for _ in range(6):
        waits_s.append(next_wait_s(waits_s[-1], answered=False))
    assert waits_s[:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits_s[-1] == limits.REPORT_RETRY_S
    assert next_wait_s(waits_s[-1], answered=True) == RECONNECT_S


async def test_reports_flow_and_come_back_after_a_node_restarts() -> None:
    seen: asyncio.Queue[NodeLoad] = asyncio.Queue()
    reports = LoadReports(seen.put_nowait, now=asyncio.get_running_loop().time)

    async def reported(utilization: float) -> None:
        async with asyncio.timeout(20):
            while [load.utilization for load in (await seen.get()).versions] != [utilization]:
                continue

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reports.run())
        port = 0
        for utilization in (0.25, 0.75):
            node = FakeGpuNode(
                "n1", pool="a", region="eu", zone="z", xds="127.0.0.1:1", orca_port=port
            )
            node.held["vision@1"] = "v"
            node.set_load("vision", 1, Load(utilization=utilization, rps=2))
            async with node:
                port = node.orca_port
                reports.follow({"n1": ("127.0.0.1", port)})
                await reported(utilization)
        reports.follow({})
        running.cancel()
