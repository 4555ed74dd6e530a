"""Configuration to Envoy resources, as files; and every file passes Envoy's own check."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace import ir, names
from headrace.config.analyze import analyze, usable
from headrace.config.load import load
from headrace.resolve import resolve
from headrace_xds import envoy_schema
from headrace_xds.binaries import envoy
from headrace_xds.translate import resources, translate
from headrace_xds.translate.bootstrap import bootstrap
from headrace_xds.translate.clusters import PROTOCOLS
from headrace_xds.translate.endpoints import Member, load_assignment
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import Resource
from headrace_xds.translate.standalone import standalone
from tests.fakes.golden_files import Golden

HERE = Path(__file__).parent
INPUTS = [
    path
    for path in sorted((HERE / "in").glob("*.yaml"))
    if usable(analyze(load([(path.name, path.read_text())])))
]
EMPTY = HERE / "in" / "empty.yaml"
SUFFIXES = {
    resources.CLUSTER: "clusters",
    resources.ENDPOINTS: "endpoints",
    resources.EXTENSION: "extensions",
    resources.LISTENER: "listeners",
    resources.SCOPES: "scopes",
    resources.ROUTES: "routes",
    resources.RUNTIME: "runtime",
}


def mesh_of(path: Path) -> ir.Mesh:
    return resolve(load([(path.name, path.read_text())]))


def gateways(mesh: ir.Mesh) -> list[tuple[ir.Gateway, ir.Region]]:
    return [(gateway, region) for region in mesh.regions for gateway in region.gateways]


def endpoints(mesh: ir.Mesh, region: ir.Region) -> dict[str, Resource]:
    """Endpoints of the static nodes, as the gateways of a region see them."""
    every_pool = tuple(pool.name for pool in mesh.pools)
    made: dict[str, Resource] = {}
    for protocol in PROTOCOLS:
        held = {names.node_cluster(protocol): every_pool}
        held |= {names.cluster(v.model, v.version, protocol): v.pools for v in mesh.versions}
        for cluster, pools in held.items():
            members = [m for name in pools for m in _members(mesh, region, name, protocol)]
            made[cluster] = load_assignment(cluster, members)
    return made


def _members(mesh: ir.Mesh, region: ir.Region, pool_name: str, protocol: str) -> list[Member]:
    order = (region.name, *region.failover)
    reached = [pool for pool in mesh.pools if pool.name == pool_name and pool.region in order]
    return [
        Member(
            node=node.name,
            address=node.address,
            port=node.http_port if protocol == "http" else node.grpc_port,
            region=pool.region,
            zone=pool.zone,
            priority=order.index(pool.region),
        )
        for pool in reached
        for node in pool.nodes
    ]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that a difference shows the line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=True, width=100, explicit_start=True)


def started(gateway: ir.Gateway, region: ir.Region) -> dict[str, Any]:
    sockets = ("127.0.0.1", 18000), ("127.0.0.1", 19000)
    return bootstrap(gateway, zone=region.zones[0], xds=sockets[0], admin=sockets[1])


@cache
def translated(path: Path) -> dict[str, dict[str, Resource]]:
    """Everything the first gateway of a mesh gets."""
    mesh = mesh_of(path)
    gateway, region = gateways(mesh)[0]
    made = translate(mesh, gateway, FragmentCache())
    return {**made, resources.ENDPOINTS: endpoints(mesh, region)}


def written(path: Path, type_url: str) -> str:
    """Resources in full, except those that a mesh without a model has too, byte by byte: of every
    input, its file shows what its features add.
    """
    schema, plain = envoy_schema.read(envoy()), translated(EMPTY)[type_url]
    parts = [
        f"--- # {name}: as in {EMPTY.name}\n"
        if path != EMPTY and plain.get(name) == each
        else as_yaml(schema.to_json(type_url, each.body))
        for name, each in sorted(translated(path)[type_url].items())
    ]
    return "".join(parts)


@pytest.mark.parametrize("type_url", SUFFIXES, ids=SUFFIXES.get)
def test_configuration_becomes_these_resources(type_url: str, golden: Golden) -> None:
    suffix = SUFFIXES[type_url]
    texts = {f"{path.stem}.{suffix}.yaml": written(path, type_url) for path in INPUTS}
    golden.check(HERE / "out", f"*.{suffix}.yaml", texts)


def test_a_gateway_is_started_with_this(golden: Golden) -> None:
    plain = as_yaml(started(*gateways(mesh_of(EMPTY))[0]))
    texts = {}
    for path in INPUTS:
        text = as_yaml(started(*gateways(mesh_of(path))[0]))
        is_plain = path != EMPTY and text == plain
        texts[f"{path.stem}.bootstrap.yaml"] = f"--- # as in {EMPTY.name}\n" if is_plain else text
    golden.check(HERE / "out", "*.bootstrap.yaml", texts)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_envoy_accepts_them(path: Path, tmp_path: Path) -> None:
    mesh, schema = mesh_of(path), envoy_schema.read(envoy())
    for gateway, region in gateways(mesh):
        config = started(gateway, region)
        made = translate(mesh, gateway, FragmentCache())
        static, dynamic = tmp_path / "static.pb", tmp_path / "dynamic.yaml"
        static.write_bytes(standalone(config, made, endpoints(mesh, region), schema))
        dynamic.write_text(yaml.safe_dump(config))
        for file in (static, dynamic):
            command = [str(envoy()), "--mode", "validate", "-c", str(file), "--log-level", "warn"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
            assert done.returncode == 0, done.stderr
            assert "warning" not in done.stderr
