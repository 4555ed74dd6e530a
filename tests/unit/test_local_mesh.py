"""The local mesh keeps its programs running and stops them; stand-ins play the programs."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import limits
from headrace_xds.local import identity, record
from headrace_xds.local.mesh import LocalMesh, MeshNotReadyError
from headrace_xds.local.plan import GatewayPlace, Node, Options, Plan, Program, runtime_dir, write
from headrace_xds.local.ports import free
from headrace_xds.local.topology import NodePlace

FAKE = Path(__file__).parents[1] / "fakes" / "program.py"
PLACE = NodePlace(name="eu-1", pool="p", region="eu", zone="z", address="127.0.1.1")


def eventually(true: Callable[[], object], *, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def plan_of(state_dir: Path, *flags: str) -> Plan:
    """One node, one gateway and the control server; ``flags`` go to the program of the node."""
    ports = free(["eu"], addresses=[PLACE.address])
    admins, node = f"127.0.0.1:{ports.admin}", f"{PLACE.address}:{ports.node_http}"
    gateway = [f"127.0.0.1:{ports.gateways['eu']}", f"127.0.0.1:{ports.gateway_admins['eu']}"]

    def program(name: str, stage: int, *arguments: str) -> Program:
        argv = (sys.executable, str(FAKE), *arguments)
        return Program(name=name, argv=argv, stage=stage)

    (state_dir / "held").mkdir(parents=True)
    return Plan(
        options=Options(config_dir=""),
        config_dir=str(state_dir),
        state_dir=str(state_dir),
        runtime_dir=str(runtime_dir(state_dir)),
        ports=ports,
        nodes=(Node(place=PLACE, versions=(("vision", 1),)),),
        gateways=(
            GatewayPlace(
                name="eu",
                region="eu",
                zone="z",
                address="127.0.0.1",
                port=ports.gateways["eu"],
                admin_port=ports.gateway_admins["eu"],
                bootstrap_file="",
            ),
        ),
        programs=(
            program("xds", 0, admins),
            program("gpu/eu-1", 1, node, *flags),
            program("gateway/eu", 2, *gateway),
        ),
    )


def write_and_run(plan: Plan, *, wait: bool = True) -> LocalMesh:
    write(plan)
    return LocalMesh.run(plan, wait=wait)


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[LocalMesh]:
    with write_and_run(plan_of(tmp_path / "s")) as started:
        yield started


def test_a_started_mesh_says_what_became_ready(tmp_path: Path) -> None:
    lines: list[str] = []
    plan = plan_of(tmp_path / "s")
    with write_and_run(plan, wait=False) as mesh:
        mesh.wait_ready(progress=lines.append)
    parts = {line.partition(":")[0] for line in lines}
    assert parts == {"control server", "gateway eu", "node eu-1"}
    whats = [line.partition(": ")[2].partition(" ready")[0].split(", ") for line in lines]
    assert sorted(what for found in whats for what in found) == [
        "Envoy",
        "front door",
        "up",
        "vision 1",
        "vision 1",
    ]


def test_a_killed_program_is_started_again(mesh: LocalMesh) -> None:
    before = mesh.pid("gpu/eu-1")
    mesh.kill("gpu/eu-1")
    eventually(lambda: mesh.pid("gpu/eu-1") not in (None, before))
    assert mesh.starts("gpu/eu-1") == 2
    assert mesh.starts("xds") == 1
    mesh.wait_ready(within_s=20)


def test_a_halted_program_stays_down_until_it_is_resumed(mesh: LocalMesh) -> None:
    mesh.halt("xds")
    assert mesh.pid("xds") is None
    mesh.kill("gpu/eu-1")
    eventually(lambda: mesh.starts("gpu/eu-1") == 2)
    assert mesh.pid("xds") is None
    assert mesh.resume("xds") == mesh.pid("xds")
    mesh.wait_ready(within_s=20)


def test_a_stopped_program_exits_by_itself(mesh: LocalMesh) -> None:
    mesh.stop_program("gpu/eu-1")
    assert mesh.log("gpu/eu-1").splitlines() == ["started", "stopped"]
    assert mesh.pid("gpu/eu-1") is None


def test_stopping_ends_every_program_and_removes_the_sockets(tmp_path: Path) -> None:
    mesh = write_and_run(plan_of(tmp_path / "s"))
    processes = record.read(mesh.state_dir).running()
    assert set(processes) == {"xds", "gpu/eu-1", "gateway/eu"}
    mesh.stop()
    assert not any(identity.alive(process) for process in processes.values())
    assert not Path(mesh.plan.runtime_dir).exists()
    mesh.stop()


def test_a_program_that_ignores_the_request_to_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOCAL_STOP_S", 0.3)
    mesh = write_and_run(plan_of(tmp_path / "s", "--deaf"))
    mesh.stop_program("gpu/eu-1")
    assert mesh.pid("gpu/eu-1") is None
    mesh.stop()


def test_a_mesh_whose_supervisor_died_is_taken_over(mesh: LocalMesh) -> None:
    supervisor = record.read(mesh.state_dir).supervisor
    assert supervisor is not None
    before = mesh.pid("gpu/eu-1")
    identity.send(supervisor, signal.SIGKILL)
    eventually(lambda: not record.read(mesh.state_dir).supervised)
    mesh.kill("xds")
    with LocalMesh.run(mesh.plan) as again:
        assert again.pid("gpu/eu-1") == before
        again.kill("gpu/eu-1")
        eventually(lambda: again.pid("gpu/eu-1") not in (None, before))


def test_a_mesh_whose_supervisor_died_is_stopped_all_the_same(mesh: LocalMesh) -> None:
    processes = record.read(mesh.state_dir).running()
    supervisor = record.read(mesh.state_dir).supervisor
    assert supervisor is not None
    identity.send(supervisor, signal.SIGKILL)
    mesh.stop()
    assert not any(identity.alive(process) for process in processes.values())


def test_a_second_start_starts_only_what_is_missing(mesh: LocalMesh) -> None:
    mesh.halt("gateway/eu")
    before = mesh.pid("gpu/eu-1")
    again = LocalMesh.run(mesh.plan)
    assert again.pid("gpu/eu-1") == before
    assert again.pid("gateway/eu") is not None


def test_a_program_that_keeps_ending_is_named_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(MeshNotReadyError, match=r"(?s)gpu/eu-1 .*exit 3.*always ends"):
        write_and_run(plan_of(tmp_path / "s", "--crash"))


def test_a_log_is_bounded(mesh: LocalMesh) -> None:
    path = mesh.state_dir / "logs" / "gpu-eu-1.log"
    with path.open("ab") as log:
        log.write(b"x" * limits.LOCAL_LOG_BYTES)
    eventually(lambda: path.stat().st_size < 1000)
    mesh.stop_program("gpu/eu-1")
    assert mesh.log("gpu/eu-1") == "stopped"
    assert path.with_name("gpu-eu-1.log.1").stat().st_size >= limits.LOCAL_LOG_BYTES


def test_a_tied_mesh_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    mesh = write_and_run(plan_of(tmp_path / "s"))
    processes = record.read(mesh.state_dir).running()
    lifeline = mesh._lifeline
    assert lifeline is not None
    assert lifeline.stdin is not None
    lifeline.stdin.close()
    eventually(lambda: not any(identity.alive(process) for process in processes.values()))
    lifeline.wait()


def test_a_reused_id_is_never_signalled() -> None:
    own = identity.identify(os.getpid())
    assert own is not None
    stranger = identity.Identity(own.pid, own.started - 1)
    assert not identity.send(stranger, signal.SIGKILL)
    identity.kill_group(stranger)
