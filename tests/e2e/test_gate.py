"""A real Envoy is asked about everything that changed, before anything is published."""

import asyncio
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.service.runtime.v3 import rtds_pb2

from headrace import ir, limits, names
from headrace_xds import envoy_schema
from headrace_xds.binaries import envoy
from headrace_xds.configuration import Configuration
from headrace_xds.control import Compiled
from headrace_xds.gate.envoy import EnvoyCheck, NoVerdict
from headrace_xds.gate.gate import VERDICTS_FILE, Gate
from headrace_xds.gate.verdicts import Verdicts
from headrace_xds.source.files import read_folder
from headrace_xds.translate import resources, translate
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import Resource, resource
from tests.fakes import stubborn_envoy
from tests.fakes.control_world import MESH, MODEL, ROUTE, ControlWorld, until
from tests.fakes.mesh_ir import gateway_of, mesh, route, served

pytestmark = pytest.mark.e2e

CACHE = FragmentCache()
SCHEMA = envoy_schema.read(envoy())
CHAT = ir.Source("Route", "chat", "routes.yaml", 7)
VISION = ir.Source("Model", "vision", "models.yaml", 3)
MESH_SOURCE = ir.Source("Mesh", "test", "mesh.yaml", 1)
GOOD = mesh(
    served("vision", 1, source=VISION),
    served("chat", 1),
    route("chat", "chat", (1, 10_000), source=CHAT),
    runtime=ir.Runtime(retry_percent=50, source=MESH_SOURCE),
)
MESSAGES = {
    resources.CLUSTER: cluster_pb2.Cluster,
    resources.EXTENSION: extension_pb2.TypedExtensionConfig,
    resources.LISTENER: listener_pb2.Listener,
    resources.ROUTES: route_pb2.RouteConfiguration,
    resources.RUNTIME: rtds_pb2.Runtime,
}
Published = dict[str, dict[str, Resource]]


def published(value: ir.Mesh = GOOD) -> Published:
    return translate(value, gateway_of(value), CACHE)


def spoilt(made: Published, type_url: str, name: str, edit: Callable[[Any], object]) -> Published:
    """What is published, with one resource edited."""
    before = made[type_url][name]
    message = MESSAGES[type_url].FromString(before.body)
    edit(message)
    after = resource(type_url, name, message.SerializeToString(), *before.sources)
    return {**made, type_url: {**made[type_url], name: after}}


def bad_regex(table: Any) -> None:
    table.virtual_hosts[0].routes[0].match.safe_regex.regex = "(("


def bad_header(table: Any) -> None:
    table.virtual_hosts[0].request_headers_to_add.add().header.key = "Host"


def bad_breaker(cluster: Any) -> None:
    cluster.circuit_breakers.per_host_thresholds.add().max_requests.value = 3


def no_such_cluster(table: Any) -> None:
    table.virtual_hosts[0].routes[-1].route.cluster = "nowhere"


def bad_script(extension: Any) -> None:
    extension.typed_config.value = extension.typed_config.value.replace(b"function", b"funktion")


def bad_address(listener: Any) -> None:
    listener.address.socket_address.address = "not an address"


def bad_override(layer: Any) -> None:
    layer.layer["upstream.use_retry"] = None


async def judge(gate: Gate, made: Mapping[str, Mapping[str, Resource]]) -> list[tuple[str, ...]]:
    """Where a gate finds problems, and what it says."""
    found = await gate.judge(GOOD, {"eu": made})
    assert all(problem.code == "HR0701" for problem in found)
    return [(f"{p.file}:{p.line}", p.object, p.message) for p in found]


@pytest.mark.parametrize(
    "case",
    [
        (resources.ROUTES, "models/chat", bad_regex, "routes.yaml:7", "missing ): (("),
        (resources.ROUTES, "models/chat", bad_header, "routes.yaml:7", "may not be modified"),
        (resources.ROUTES, "models/chat", no_such_cluster, "routes.yaml:7", "unknown cluster"),
        (resources.CLUSTER, "m-vision-1-http", bad_breaker, "models.yaml:3", "Unsupported field"),
        (resources.EXTENSION, "headrace.model", bad_script, "mesh:1", "headrace.model"),
        (resources.LISTENER, "gateway", bad_address, "mesh:1", "malformed IP address"),
        (resources.RUNTIME, "headrace", bad_override, "mesh.yaml:1", "upstream.use_retry"),
    ],
    ids=["regex", "header", "missing cluster", "cluster", "script", "listener", "override"],
)
async def test_what_envoy_refuses_is_named_with_the_line_that_made_it(
    tmp_path: Path, case: tuple[str, str, Callable[[Any], object], str, str]
) -> None:
    type_url, name, edit, place, text = case
    gate = Gate(envoy(), tmp_path, SCHEMA)
    bad = spoilt(published(), type_url, name, edit)
    (found,) = await judge(gate, bad)
    assert found[0] == place
    assert name in found[2]
    assert text in found[2]
    assert gate.refusals >= 1
    # The same again is no better, and what it was before is still good.
    assert await judge(gate, bad) == [found]
    assert await judge(gate, published()) == []


async def test_all_that_is_bad_is_found_among_much_that_is_good(tmp_path: Path) -> None:
    many = [served(f"m{number}", 1) for number in range(20)]
    value = mesh(*many)
    made = spoilt(published(value), resources.ROUTES, "models/m3", bad_regex)
    made = spoilt(made, resources.CLUSTER, "m-m17-1-grpc", bad_breaker)
    gate = Gate(envoy(), tmp_path, SCHEMA)
    found = await gate.judge(value, {"eu": made})
    assert {problem.message.split(":")[0] for problem in found} == {
        "RouteConfiguration models/m3",
        "Cluster m-m17-1-grpc",
    }
    assert gate.check.runs <= limits.GATE_RUNS


async def test_only_what_changed_is_checked_and_nothing_twice(tmp_path: Path) -> None:
    gate = Gate(envoy(), tmp_path, SCHEMA)
    assert await judge(gate, published()) == []
    runs = gate.check.runs
    assert await judge(gate, published()) == []
    assert gate.check.runs == runs
    moved = spoilt(published(), resources.ROUTES, "models/chat", lambda table: None)
    moved[resources.ROUTES]["models/chat"] = resource(
        resources.ROUTES, "models/chat", moved[resources.ROUTES]["models/chat"].body + b"\x3a\x00"
    )
    assert await judge(gate, moved) == []
    assert gate.check.runs == runs + 1


async def test_verdicts_survive_a_restart_and_belong_to_one_envoy(tmp_path: Path) -> None:
    first = Gate(envoy(), tmp_path, SCHEMA)
    assert await judge(first, published()) == []
    again = Gate(envoy(), tmp_path, SCHEMA)
    assert await judge(again, published()) == []
    assert again.check.runs == 0
    other = Gate(stubborn_envoy.refuses(tmp_path, "models/chat"), tmp_path, SCHEMA)
    assert await judge(other, published()) != []


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 1_000], ids=["empty", "short", "other"])
async def test_a_damaged_file_of_verdicts_costs_a_check_and_nothing_else(
    tmp_path: Path, damage: bytes
) -> None:
    (tmp_path / VERDICTS_FILE).write_bytes(damage)
    gate = Gate(envoy(), tmp_path, SCHEMA)
    assert await judge(gate, published()) == []
    assert gate.check.runs == 1


async def test_an_envoy_that_dies_is_a_refusal_and_one_that_hangs_is_no_verdict(
    tmp_path: Path,
) -> None:
    text = await EnvoyCheck(stubborn_envoy.dies(tmp_path)).refusal(b"")
    assert text is not None
    assert "signal 11" in text
    check = EnvoyCheck(stubborn_envoy.dies_once(tmp_path))
    assert await check.refusal(b"") is None, "a signal may come from outside"
    assert check.runs == 2
    with pytest.raises(NoVerdict, match=r"no verdict within 0\.2 s"):
        await EnvoyCheck(stubborn_envoy.hangs(tmp_path), patience_s=0.2).refusal(b"")
    with pytest.raises(NoVerdict, match="cannot be run"):
        await EnvoyCheck(tmp_path / "envoy-is-not-here").refusal(b"")


async def test_the_gate_never_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # gRPC's handlers would run in the child, and kill it at times before it becomes Envoy.
    def fork(*_: object) -> None:
        raise AssertionError("forked")

    monkeypatch.setattr("subprocess._fork_exec", fork)
    assert await EnvoyCheck(stubborn_envoy.counts(tmp_path)).refusal(b"") is None


async def test_so_many_envoys_run_at_once_and_no_more(tmp_path: Path) -> None:
    check = EnvoyCheck(stubborn_envoy.counts(tmp_path))
    await asyncio.gather(*(check.refusal(b"") for _ in range(3 * limits.GATE_WORKERS)))
    running = [int(line) for line in (tmp_path / "running").read_text().split()]
    assert len(running) == 3 * limits.GATE_WORKERS
    assert max(running) <= limits.GATE_WORKERS


async def test_a_long_text_of_envoy_is_cut(tmp_path: Path) -> None:
    chatty = stubborn_envoy.chatters(tmp_path, limits.GATE_TEXT_LENGTH + 500)
    text = await EnvoyCheck(chatty).refusal(b"")
    assert text == "x" * limits.GATE_TEXT_LENGTH


async def test_many_changes_are_checked_in_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GATE_CHUNK", 4)
    made = published()
    gate = Gate(envoy(), tmp_path, SCHEMA)
    assert await judge(gate, made) == []
    checked = sum(len(found) for kind, found in made.items() if kind != resources.SCOPES)
    assert gate.check.runs == math.ceil(checked / limits.GATE_CHUNK)


def test_verdicts_are_bounded_and_the_oldest_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GATE_VERDICTS", 2)
    verdicts = Verdicts(tmp_path / "verdicts", b"build")
    one, two, three = (resource(resources.CLUSTER, name, b"") for name in ("1", "2", "3"))
    verdicts.add([one, two, one, three])
    assert [each in verdicts for each in (one, two, three)] == [True, False, True]


class World:
    """A configuration folder behind a gate."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self.folder = folder / "config"
        self.folder.mkdir()
        self.effects: list[Compiled] = []
        ports = {"orca_port": 18082, "gateway_port": 10000}
        for name, text in {"mesh": MESH % ports, "model": MODEL, "route": ROUTE % 1}.items():
            (self.folder / f"{name}.yaml").write_text(text)
        self.made = Configuration(
            self.folder,
            folder / "state",
            effect=self.effects.append,
            wall_s=lambda: 1.0,
            gate=gate,
        )

    async def reload(self, route: str) -> None:
        (self.folder / "route.yaml").write_text(route)
        await self.made.reload(read_folder(self.folder))


BAD_ROUTE = ROUTE % 1 + "  match: {headers: [{name: x-forbidden, value: a}]}\n"


async def test_a_configuration_that_envoy_refuses_changes_nothing(tmp_path: Path) -> None:
    gate = Gate(stubborn_envoy.refuses(tmp_path, "x-forbidden"), tmp_path, SCHEMA)
    world = World(tmp_path, gate)
    await world.made.start()
    assert (world.made.generation, world.made.accepted) == (1, True)
    await world.reload(BAD_ROUTE)
    assert (world.made.generation, world.made.accepted) == (1, False)
    (problem,) = [found for found in world.made.problems if found.is_error]
    assert (problem.code, problem.file, problem.line) == ("HR0701", "route.yaml", 1)
    assert "it may not" in problem.message
    checked, _ = await world.made.apply(BAD_ROUTE, dry_run=True)
    assert checked.compiled is None
    await world.reload(ROUTE % 2)
    assert (world.made.generation, world.made.accepted) == (2, True)
    assert len(world.effects) == 2


async def test_without_a_verdict_nothing_is_published(tmp_path: Path) -> None:
    gate = Gate(envoy(), tmp_path, SCHEMA)
    world = World(tmp_path, gate)
    await world.made.start()
    gate.check = EnvoyCheck(stubborn_envoy.hangs(tmp_path), patience_s=0.2)
    assert limits.GATE_CHECK_S > 0.2
    await world.reload(ROUTE % 2)
    assert (world.made.generation, world.made.accepted) == (1, False)
    assert world.made.unreadable == ("the gate: Envoy gave no verdict within 0.2 s",)


async def test_the_tables_checked_come_with_their_clusters_and_no_others(tmp_path: Path) -> None:
    # Envoy refuses static tables whose clusters are missing, so this passes only if they are there.
    value = mesh(*(served(f"m{number}", 1) for number in range(30)))
    made = published(value)
    refusing = stubborn_envoy.refuses(tmp_path, "m-m7-1-http")
    gate = Gate(refusing, tmp_path, SCHEMA)
    changed = {**made, resources.CLUSTER: {}, resources.ROUTES: {}, resources.SCOPES: {}}
    for type_url in (resources.CLUSTER, resources.ROUTES, resources.SCOPES):
        changed[type_url] = {n: r for n, r in made[type_url].items() if "m7" not in n}
    assert await gate.judge(value, {"eu": changed}) == ()
    assert await gate.judge(value, {"eu": made}) != ()
    assert names.route_table("m7") in made[resources.ROUTES]


async def test_without_a_verdict_the_gate_is_asked_again_until_it_gives_one(
    tmp_path: Path,
) -> None:
    async with ControlWorld(tmp_path) as world:
        world.gate = tmp_path / "envoy"
        world.gate.symlink_to(envoy())
        await world.up("n1")
        world.gate.unlink()
        world.route_to(2)

        async def undecided() -> bool:
            (reason,) = (await world.admin("/v1/problems"))["unreadable"] or [""]
            return "cannot be run" in reason

        await until(undecided)
        assert await world.infer() == "1"
        world.gate.symlink_to(envoy())

        async def on_version_2() -> bool:
            return await world.infer() == "2"

        await until(on_version_2)
        assert (await world.admin("/v1/generation"))["accepted"]
        assert 0 < limits.GATE_RETRY_S < limits.GATE_CHECK_S
