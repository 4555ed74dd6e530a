"""Lays out the programs of a local mesh: their command lines, sockets and folders. Decides only."""

import sys
from pathlib import Path

from headrace import ir, names
from headrace_xds.local import topology
from headrace_xds.local.plan import (
    XDS,
    GatewayPlace,
    Node,
    Options,
    Plan,
    Program,
    runtime_dir,
)
from headrace_xds.local.ports import Ports
from headrace_xds.source.secrets import CERTIFICATE
from headrace_xds.translate.bootstrap import DRAIN_FLAGS


def make(
    mesh: ir.Mesh,
    options: Options,
    *,
    config_dir: Path,
    state_dir: Path,
    ports: Ports,
    envoy: Path,
) -> Plan:
    """Lay out every program of the mesh."""
    home = runtime_dir(state_dir)
    places = topology.nodes(mesh, per_pool=options.nodes_per_pool, regions=options.regions)
    gateways = tuple(
        GatewayPlace(
            name=gateway.name,
            region=gateway.region,
            zone=topology.zone(mesh, gateway.region),
            address=gateway.address,
            port=ports.gateways[gateway.name],
            admin_port=ports.gateway_admins[gateway.name],
            bootstrap_file=str(state_dir / "gateways" / f"{gateway.name}.json"),
            certificate_file=(
                str(Path(options.secrets_dir) / gateway.tls.secret / CERTIFICATE)
                if gateway.tls
                else ""
            ),
            asks_callers=gateway.tls is not None and gateway.tls.client_ca is not None,
        )
        for gateway in topology.gateways(mesh, regions=options.regions)
    )
    programs = [
        _xds(config_dir, state_dir, ports, options.secrets_dir),
        *(_gateway(gateway, envoy) for gateway in gateways),
        *(_triton(place, home, options.cache_dir) for place in places),
        *(_gpu(place, home, state_dir, ports) for place in places),
    ]
    return Plan(
        options=options,
        config_dir=str(config_dir),
        state_dir=str(state_dir),
        runtime_dir=str(home),
        ports=ports,
        nodes=tuple(Node(place=p, versions=topology.held(mesh, p.pool)) for p in places),
        gateways=gateways,
        programs=tuple(programs),
    )


def _module(name: str, *flags: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name, *flags)


def _xds(config_dir: Path, state_dir: Path, ports: Ports, secrets_dir: str) -> Program:
    argv = _module(
        "headrace_xds",
        *("--config", str(config_dir)),
        *("--state-dir", str(state_dir / "xds")),
        *("--xds-address", f"127.0.0.1:{ports.xds}"),
        *("--admin-address", f"127.0.0.1:{ports.admin}"),
        *(("--secrets", secrets_dir) if secrets_dir else ()),
    )
    return Program(name=XDS, argv=argv, stage=0)


def _gateway(gateway: GatewayPlace, envoy: Path) -> Program:
    argv = (
        str(envoy),
        *("-c", gateway.bootstrap_file),
        *("--concurrency", "1"),
        *DRAIN_FLAGS,
        *("--log-level", "warning"),
        # Hot restart shares memory between Envoys with the same number: these are not related.
        "--disable-hot-restart",
    )
    return Program(name=names.gateway_node_id(gateway.name), argv=argv, stage=2)


def _triton(place: topology.NodePlace, home: Path, cache_dir: str) -> Program:
    argv = _module(
        "headrace_models",
        *("--state-dir", str(home / place.name)),
        *("--agent-socket", str(home / place.name / "agent.sock")),
        *(("--cache-dir", cache_dir) if cache_dir else ()),
    )
    return Program(name=f"triton/{place.name}", argv=argv, stage=0)


def _gpu(place: topology.NodePlace, home: Path, state_dir: Path, ports: Ports) -> Program:
    argv = _module(
        "headrace_sidecar.gpu",
        *("--node", place.name),
        *("--pool", place.pool),
        *("--region", place.region),
        *("--zone", place.zone),
        *("--address", place.address),
        *("--http-port", str(ports.node_http)),
        *("--grpc-port", str(ports.node_grpc)),
        *("--orca-port", str(ports.node_orca)),
        *("--metrics-port", str(ports.node_metrics)),
        *("--xds", f"127.0.0.1:{ports.xds}"),
        *("--agent-socket", str(home / place.name / "agent.sock")),
        *("--triton-socket", f"unix:{home / place.name / 'triton.sock'}"),
        *("--state-dir", str(state_dir / "nodes" / place.name)),
    )
    return Program(name=names.gpu_node_id(place.name), argv=argv, stage=1)
