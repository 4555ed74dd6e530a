"""The control streams of the sidecars break while their data ports live: callers notice nothing."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from headrace_xds.local import plan
from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.plan import Options, Plan
from headrace_xds.local.start import lay_out
from tests.fakes import echo_mesh
from tests.fakes.echo_mesh import infer, stats
from tests.fakes.load import eventually, steady
from tests.fakes.relay import Relay, relay

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

LATE_S = 5.0
RPS = 50.0
CLUSTER = "m-echo-1-http"
NEEDLESS = (
    "cluster_manager.cluster_added",
    "cluster_manager.cluster_modified",
    "cluster_manager.cluster_removed",
    "listener_manager.listener_added",
    "listener_manager.listener_modified",
    f"cluster.{CLUSTER}.update_empty",
)


def behind(made: Plan, port: int) -> Plan:
    """The plan with every sidecar's control stream through a port."""
    programs = tuple(
        msgspec.structs.replace(program, argv=_through(program.argv, made.ports.xds, port))
        if program.name.startswith("gpu/")
        else program
        for program in made.programs
    )
    return msgspec.structs.replace(made, programs=programs)


def _through(argv: tuple[str, ...], old: int, new: int) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{new}" if part == f"127.0.0.1:{old}" else part for part in argv)


@asynccontextmanager
async def severable(tmp_path: Path) -> AsyncIterator[tuple[LocalMesh, Relay]]:
    """One region whose sidecars reach the control server through a relay."""
    options = Options(
        config_dir=str(echo_mesh.MESHES / "echo"), ports="auto", nodes_per_pool=2, regions=("eu",)
    )
    made = lay_out(options, tmp_path)
    async with relay(made.ports.xds) as cable:
        made = behind(made, cable.port)
        plan.write(made)
        mesh = await asyncio.to_thread(LocalMesh.run, made)
        try:
            yield mesh, cable
        finally:
            await asyncio.to_thread(mesh.stop)


def counted(mesh: LocalMesh) -> dict[str, int]:
    """Pushes that an unchanged configuration must not cause."""
    found = {
        **stats(mesh, "gw-eu", "cluster_manager.cluster_"),
        **stats(mesh, "gw-eu", "listener_manager.listener_"),
        **stats(mesh, "gw-eu", f"cluster.{CLUSTER}.update_empty"),
    }
    return {name: found.get(name, 0) for name in NEEDLESS}


def states(mesh: LocalMesh) -> set[str]:
    return {node["state"] for node in echo_mesh.admin(mesh, "/v1/nodes")["items"]}


async def watch(mesh: LocalMesh, for_s: float) -> None:
    """See for a while that the gateway keeps every node."""
    everywhere = {node.place.address for node in mesh.plan.nodes}
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        assert set(echo_mesh.hosts(mesh, "gw-eu", CLUSTER)) == everywhere
        await asyncio.sleep(0.1)


async def test_cut_streams_remove_nothing_and_a_restart_with_late_sidecars_empties_nothing(
    tmp_path: Path,
) -> None:
    async with (
        severable(tmp_path) as (mesh, cable),
        steady(mesh.gateway("gw-eu").url, lambda n: infer("echo", f"{n}"), rps=RPS) as traffic,
    ):
        await eventually(lambda: len(traffic.answers) > 60, what="the first answers")
        before = counted(mesh)

        cable.cut()
        await eventually(lambda: states(mesh) == {"suspect"}, what="suspicion of cut-off nodes")
        await watch(mesh, LATE_S)
        assert counted(mesh) == before

        await asyncio.to_thread(mesh.halt, "xds")
        await asyncio.to_thread(mesh.resume, "xds")
        await watch(mesh, LATE_S)
        cable.join()
        await eventually(
            lambda: states(mesh) == {"connected"}, within_s=60, what="the sidecars' return"
        )
        await eventually(lambda: echo_mesh.in_effect(mesh), what="every proxy in effect")
        await watch(mesh, 1.0)
        assert counted(mesh) == before
    assert not traffic.failed, traffic.failed[:3]
