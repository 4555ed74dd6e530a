"""What a local mesh consists of: its nodes, ports, command lines; when programs start again."""

import socket
from pathlib import Path

import msgspec
import pytest

from headrace import ir, limits
from headrace_xds.local import layout, logs, plan, ports, restarts, topology
from headrace_xds.local.plan import Options


def pool(name: str, region: str) -> ir.Pool:
    return ir.Pool(name, region, "a", "cpu", 2**30, registered=True, nodes=())


def mesh_of(*pools: ir.Pool) -> ir.Mesh:
    regions = tuple(
        ir.Region(name, ("a",), (ir.Gateway(name, name, "127.0.0.1", port),), ())
        for name, port in (("eu", 10000), ("us", 10001))
    )
    return ir.Mesh("local", 18082, regions, pools, (), (), ())


MESH = mesh_of(pool("eu-cpu", "eu"), pool("us-cpu", "us"))


def test_nodes_are_named_by_region_and_have_an_address_each() -> None:
    found = topology.nodes(MESH, per_pool=2)
    assert [(node.name, node.address) for node in found] == [
        ("eu-1", "127.0.1.1"),
        ("eu-2", "127.0.1.2"),
        ("us-1", "127.0.1.3"),
        ("us-2", "127.0.1.4"),
    ]


def test_a_node_keeps_its_address_when_only_a_part_is_started() -> None:
    found = topology.nodes(MESH, per_pool=2, regions=("us",))
    assert [(node.name, node.address) for node in found] == [
        ("us-1", "127.0.1.3"),
        ("us-2", "127.0.1.4"),
    ]
    assert [g.name for g in topology.gateways(MESH, regions=("us",))] == ["us"]


def test_nodes_of_many_pools_in_a_region_are_named_by_pool() -> None:
    mesh = mesh_of(pool("big", "eu"), pool("small", "eu"))
    assert [node.name for node in topology.nodes(mesh, per_pool=1)] == ["big-1", "small-1"]


def test_more_nodes_than_local_nodes_are_refused() -> None:
    assert len(topology.nodes(MESH, per_pool=limits.LOCAL_NODES // 2)) == limits.LOCAL_NODES
    with pytest.raises(topology.TooManyNodesError, match="--nodes-per-pool"):
        topology.nodes(MESH, per_pool=limits.LOCAL_NODES // 2 + 1)


def test_free_ports_are_free_on_every_address_and_differ() -> None:
    found = ports.free_ports(12, addresses=("127.0.0.1", "127.0.1.1"))
    assert len(set(found)) == 12
    assert all(ports.LOWEST <= port < ports.HIGHEST for port in found)


def test_a_port_that_is_taken_on_one_address_is_not_free() -> None:
    [port] = ports.free_ports(1, addresses=("127.0.1.1",))
    with socket.socket() as taken:
        taken.bind(("127.0.1.1", port))
        assert not ports._is_free(port, ("127.0.0.1", "127.0.1.1"))


def test_a_port_on_which_somebody_listens_is_named() -> None:
    with socket.create_server(("127.0.1.1", 0)) as server:
        port = server.getsockname()[1]
        sockets = [("127.0.1.1", port), ("127.0.1.2", port)]
        assert ports.taken(sockets) == [f"127.0.1.1:{port}"]
    assert ports.taken(sockets) == []


def test_documented_ports_follow_the_configuration() -> None:
    found = ports.documented({"eu": 10000, "us": 10001}, orca_port=18082)
    assert found.gateways == {"eu": 10000, "us": 10001}
    assert (found.xds, found.admin, found.node_http, found.node_orca) == (
        18000,
        10080,
        18080,
        18082,
    )


def test_a_plan_survives_being_written(tmp_path: Path) -> None:
    made = layout.make(
        MESH,
        Options(config_dir="mesh"),
        config_dir=tmp_path / "mesh",
        state_dir=tmp_path,
        ports=ports.documented({"eu": 10000, "us": 10001}, orca_port=18082),
        envoy=Path("envoy"),
    )
    plan.write(made)
    assert plan.read(tmp_path) == made
    assert [program.name for program in made.programs] == [
        "xds",
        *("gateway/eu", "gateway/us"),
        *(f"triton/{node}" for node in ("eu-1", "eu-2", "us-1", "us-2")),
        *(f"gpu/{node}" for node in ("eu-1", "eu-2", "us-1", "us-2")),
    ]


def test_a_damaged_plan_is_none(tmp_path: Path) -> None:
    (tmp_path / plan.PLAN_FILE).write_text("{")
    assert plan.read(tmp_path) is None


def test_sockets_fit_however_deep_the_state_folder_is(tmp_path: Path) -> None:
    home = plan.runtime_dir(tmp_path / ("deep/" * 30))
    longest = home / "a-node-with-a-rather-long-name-1" / "run" / "g:1"
    assert len(str(longest).encode()) <= limits.SOCKET_PATH_BYTES
    assert home != plan.runtime_dir(tmp_path)
    assert home == plan.runtime_dir(tmp_path / ("deep/" * 30))


def test_programs_that_keep_ending_start_less_and_less_often() -> None:
    delays = [restarts.delay_s(short_lives) for short_lives in range(1, 20)]
    assert delays[: len(limits.LOCAL_RESTART_DELAYS_S)] == list(limits.LOCAL_RESTART_DELAYS_S)
    assert delays[-1] == max(limits.LOCAL_RESTART_DELAYS_S)
    assert sum(delays[: limits.LOCAL_CRASHES]) < limits.LOCAL_READY_S


def test_a_settled_program_starts_again_at_once() -> None:
    assert restarts.short_lives_after(limits.LOCAL_SETTLED_S - 0.1, before=3) == 4
    assert restarts.short_lives_after(limits.LOCAL_SETTLED_S, before=3) == 1


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("\n".join(str(number) for number in range(10_000)))
    assert logs.tail(log, lines=2) == "9998\n9999"
    assert logs.tail(tmp_path / "none.log", lines=2) == ""


def test_a_plan_is_plain_json() -> None:
    place = topology.nodes(MESH, per_pool=1)[0]
    assert msgspec.json.decode(msgspec.json.encode(place), type=topology.NodePlace) == place
