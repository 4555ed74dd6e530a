"""What callers notice when parts of a real mesh die: nothing."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace_xds.local.mesh import LocalMesh
from tests.fakes import echo_mesh
from tests.fakes.echo_mesh import infer, stats
from tests.fakes.load import Answer, Traffic, eventually, send_all, steady

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

GONE_WITHIN_S = 3.0
RPS = 60.0
BUSY_RPS = 30.0
"""A model that takes 20 ms is a third busy with it on each of two nodes."""


def url(mesh: LocalMesh, region: str = "eu") -> str:
    return mesh.gateway(f"gw-{region}").url


def by_node(answer: Answer) -> str:
    return answer.node


def served_by(traffic: Traffic, node: str) -> bool:
    return any(answer.node == node for answer in traffic.answers)


async def warmed(traffic: Traffic, count: int = 60) -> None:
    await eventually(lambda: len(traffic.answers) >= count, what=f"{count} answers")


@asynccontextmanager
async def pressed(mesh: LocalMesh, node: str, model: str) -> AsyncIterator[None]:
    """Work from outside: straight to a node's front door, past every gateway, for one instance."""
    place = mesh.node(node).place
    outside = f"http://{place.address}:{mesh.plan.ports.node_http}"
    going = True

    async def press() -> None:
        while going:
            await send_all(outside, [infer(model)] * 48, concurrency=24)

    others = asyncio.ensure_future(press())
    try:
        yield
    finally:
        going = False
        await others


async def less(traffic: Traffic, node: str, calm: float) -> None:
    """See a node's share fall."""
    await eventually(
        lambda: _recent(traffic).get(node, 0.0) < calm * 0.6,
        what="a smaller share for the busy node",
    )


def why(mesh: LocalMesh, traffic: Traffic) -> str:
    """What there is to say about failed requests."""
    lines = [f"{a.status} after {a.took_s:.3f} s {a.error} {a.headers}" for a in traffic.failed[:3]]
    lines += [f"{a.status} {a.headers} {a.body[:200]!r}" for a in traffic.failed if a.status != 503]
    for cluster in ("m-echo-1-http", "m-frail-1-http", "m-weighted-1-http"):
        found = stats(mesh, "gw-eu", f"cluster.{cluster}.")
        lines.append(str({k: v for k, v in found.items() if v and ("retry" in k or "eject" in k)}))
        lines.append(str(echo_mesh.hosts(mesh, "gw-eu", cluster)))
    return "\n".join(lines)


async def test_traffic_and_balance_live_on_without_the_control_server(mesh: LocalMesh) -> None:
    async with steady(url(mesh), lambda n: infer("steered", f"{n}"), rps=BUSY_RPS) as traffic:
        await warmed(traffic, 120)
        calm = _recent(traffic).get("eu-1", 0.0)
        await asyncio.to_thread(mesh.halt, "xds")
        async with pressed(mesh, "eu-1", "steered"):
            await less(traffic, "eu-1", calm)
        assert mesh.pid("xds") is None
        await asyncio.to_thread(mesh.resume, "xds")
        await asyncio.to_thread(mesh.wait_ready)
        await eventually(lambda: echo_mesh.in_effect(mesh), what="every proxy in effect")
    assert not traffic.failed, why(mesh, traffic)


async def test_a_killed_sidecar_fails_no_request_and_comes_back(mesh: LocalMesh) -> None:
    address = mesh.node("eu-1").place.address
    async with steady(url(mesh), lambda n: infer("echo", f"{n}"), rps=RPS) as traffic:
        await warmed(traffic)
        assert served_by(traffic, "eu-1")
        await asyncio.to_thread(mesh.halt, "gpu/eu-1")
        await eventually(
            lambda: address not in echo_mesh.healthy(mesh, "gw-eu", "m-echo-1-http"),
            within_s=GONE_WITHIN_S,
            what="the dead node out of rotation",
        )
        await warmed(traffic, len(traffic.answers) + 60)
        await asyncio.to_thread(mesh.resume, "gpu/eu-1")
        back = time.monotonic()
        await eventually(
            lambda: served_by(traffic.since(back), "eu-1"), within_s=40, what="the node's return"
        )
    assert not traffic.failed, why(mesh, traffic)


async def test_a_killed_triton_fails_no_request_and_comes_back(mesh: LocalMesh) -> None:
    pids = mesh.pids("triton/eu-1")
    async with steady(url(mesh), lambda n: infer("echo", f"{n}"), rps=RPS) as traffic:
        await warmed(traffic)
        _kill(_named(pids, "tritonserver"))
        killed = time.monotonic()
        await eventually(
            lambda: (
                mesh.node("eu-1").place.address
                not in echo_mesh.healthy(mesh, "gw-eu", "m-echo-1-http")
            ),
            within_s=GONE_WITHIN_S,
            what="the node without Triton out of rotation",
        )
        await eventually(
            lambda: served_by(traffic.since(killed + GONE_WITHIN_S), "eu-1"),
            within_s=60,
            what="the node's return",
        )
    assert not traffic.failed, why(mesh, traffic)


async def test_a_killed_stub_fails_no_request_and_is_repaired(mesh: LocalMesh) -> None:
    address = mesh.node("eu-1").place.address
    stubs = [pid for pid in mesh.pids("triton/eu-1") if "frail.1" in _command(pid)]
    assert stubs, [_command(pid) for pid in mesh.pids("triton/eu-1")]
    async with steady(url(mesh), lambda n: infer("frail", f"{n}"), rps=RPS) as traffic:
        await warmed(traffic)
        _kill(stubs)
        killed = time.monotonic()
        await eventually(
            lambda: (
                address not in echo_mesh.healthy(mesh, "gw-eu", "m-frail-1-http")
                or served_by(traffic.since(killed + 0.5), "eu-1")
            ),
            within_s=GONE_WITHIN_S,
            what="the node out of rotation, or healed before that",
        )
        await eventually(
            lambda: served_by(traffic.since(killed + 1.0), "eu-1"), within_s=40, what="repair"
        )
    assert not traffic.failed, why(mesh, traffic)


async def test_a_frozen_shadow_changes_nothing_for_callers(mesh: LocalMesh) -> None:
    """Copies to a version that answers nothing pile up behind their own breaker.

    Thawed before Triton takes it for dead, within a second: a process that comes back after Triton
    gave it up makes tritonserver 2.51 abort, which heals, and is not what this is about.
    """
    frozen = [
        pid
        for node in mesh.plan.nodes
        for pid in mesh.pids(f"triton/{node.place.name}")
        if "frail.2" in _command(pid)
    ]
    assert frozen
    copies = "cluster.s-frail-2-http.upstream_rq_total"
    before = stats(mesh, "gw-eu", copies)[copies]
    async with steady(url(mesh), lambda n: infer("frail", f"{n}"), rps=RPS) as traffic:
        await warmed(traffic)
        _signal(frozen, signal.SIGSTOP)
        stopped = time.monotonic()
        await warmed(traffic, len(traffic.answers) + 40)
        thawed = time.monotonic()
        _signal(frozen, signal.SIGCONT)
    assert not traffic.failed, why(mesh, traffic)
    assert stats(mesh, "gw-eu", copies)[copies] > before
    during = Traffic([answer for answer in traffic.since(stopped).answers if answer.at_s < thawed])
    assert {answer.version for answer in during.answers} == {"1"}
    assert max(answer.took_s for answer in during.answers) < thawed - stopped


async def test_a_full_node_refuses_and_is_not_ejected(mesh: LocalMesh) -> None:
    traffic = await send_all(url(mesh), [infer("narrow") for _ in range(120)], concurrency=60)
    refused = [answer for answer in traffic.answers if answer.status == 503]
    assert refused, traffic.statuses
    assert set(traffic.statuses) <= {200, 503}, why(mesh, traffic)
    assert all(answer.headers.get("x-headrace-refused") == "overloaded" for answer in refused)
    assert all("retry-after" in {k.lower() for k in a.headers} for a in refused)
    ejections = "cluster.m-narrow-1-http.outlier_detection.ejections_enforced_total"
    assert stats(mesh, "gw-eu", ejections).get(ejections, 0) == 0


async def test_a_region_without_nodes_is_served_by_the_other(mesh: LocalMesh) -> None:
    async with steady(url(mesh), lambda n: infer("echo", f"{n}"), rps=RPS) as traffic:
        await warmed(traffic)
        await asyncio.gather(
            asyncio.to_thread(mesh.halt, "gpu/eu-1"), asyncio.to_thread(mesh.halt, "gpu/eu-2")
        )
        dead = time.monotonic()
        await eventually(
            lambda: traffic.since(dead + GONE_WITHIN_S).share(by_node),
            what="answers after both nodes died",
        )
        await warmed(traffic, len(traffic.answers) + 120)
        share = traffic.since(dead + GONE_WITHIN_S).share(by_node)
        await asyncio.to_thread(mesh.resume, "gpu/eu-1")
        await asyncio.to_thread(mesh.resume, "gpu/eu-2")
    assert not traffic.failed, why(mesh, traffic)
    assert set(share) == {"us-1", "us-2"}


async def test_a_drained_sidecar_loses_nothing(mesh: LocalMesh) -> None:
    async with steady(url(mesh), lambda n: infer("echo", f"{n}"), rps=RPS) as traffic:
        await warmed(traffic)
        await asyncio.to_thread(mesh.stop_program, "gpu/eu-2")
        await warmed(traffic, len(traffic.answers) + 60)
        await asyncio.to_thread(mesh.resume, "gpu/eu-2")
    assert not traffic.failed, why(mesh, traffic)


@pytest.mark.parametrize("model", ["steered", "weighted"])
async def test_a_node_made_busy_from_outside_gets_less(mesh: LocalMesh, model: str) -> None:
    async with steady(url(mesh), lambda n: infer(model, f"{n}"), rps=BUSY_RPS) as traffic:
        await warmed(traffic, 120)
        calm = _recent(traffic).get("eu-1", 0.0)
        async with pressed(mesh, "eu-1", model):
            await less(traffic, "eu-1", calm)
        await eventually(
            lambda: _recent(traffic).get("eu-1", 0.0) > calm * 0.8,
            within_s=30.0,
            what="the old share after the pressure ended",
        )
    assert not traffic.failed, why(mesh, traffic)


def _recent(traffic: Traffic) -> dict[str, float]:
    return Traffic(traffic.answers[-90:]).share(by_node)


def _kill(pids: list[int]) -> None:
    _signal(pids, signal.SIGKILL)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except FileNotFoundError:
        return ""


def _named(pids: list[int], program: str) -> list[int]:
    found = [pid for pid in pids if _command(pid).split(" ")[0].endswith(program)]
    assert found, [_command(pid) for pid in pids]
    return found
