"""Starts a local mesh from a folder of YAML: checks it, chooses ports, lays it out, runs it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from headrace import ir
from headrace_xds.binaries import envoy
from headrace_xds.local import configuration, layout, plan, record, topology
from headrace_xds.local import ports as port_choice
from headrace_xds.local.mesh import LocalMesh, Progress, silent
from headrace_xds.local.plan import Options, Plan
from headrace_xds.translate.bootstrap import bootstrap


class OtherMeshError(Exception):
    """A mesh with other settings runs from the state directory."""


class PortsTakenError(Exception):
    """Somebody else listens where the mesh would."""


def start(
    config_dir: Path,
    state_dir: Path,
    *,
    ports: Literal["documented", "auto"] = "auto",
    nodes_per_pool: int = 2,
    regions: Sequence[str] = (),
    cache_dir: Path | None = None,
    secrets_dir: Path | None = None,
    wait: bool = True,
    tied: bool = True,
    progress: Progress = silent,
) -> LocalMesh:
    """Start a mesh, or what is missing of one that runs from the same state directory.

    With ``ports="auto"`` the folder is copied into the state directory and given free ports.
    Raises BadConfigurationError for bad YAML, MeshNotReadyError when the mesh does not come up (a
    tied one is stopped then), OtherMeshError when one with other settings runs, PortsTakenError
    when something else listens on its ports.
    """
    options = Options(
        config_dir=str(config_dir.resolve()),
        ports=ports,
        nodes_per_pool=nodes_per_pool,
        regions=tuple(regions),
        cache_dir=str(cache_dir.resolve()) if cache_dir else "",
        secrets_dir=str(secrets_dir.resolve()) if secrets_dir else "",
    )
    made = lay_out(options, state_dir.resolve())
    return LocalMesh.run(made, wait=wait, tied=tied, progress=progress)


def lay_out(options: Options, state_dir: Path) -> Plan:
    """Plan of a mesh, kept in its state directory; the running one's when there is one."""
    before, found = plan.read(state_dir), record.read(state_dir)
    if before is not None and (found.supervised or found.running()):
        if before.options != options:
            raise OtherMeshError(f"a mesh with other settings runs from {state_dir}")
        return before
    config_dir = Path(options.config_dir)
    if options.ports == "auto":
        config_dir = state_dir / "mesh"
        if config_dir != Path(options.config_dir):
            configuration.copy(Path(options.config_dir), config_dir)
    secrets = configuration.secrets(options.secrets_dir)
    mesh = configuration.check(config_dir, secrets).mesh
    ports = _documented(mesh, options)
    if options.ports == "auto":
        ports = _free(mesh, options)
        configuration.set_ports(config_dir, gateways=ports.gateways, orca_port=ports.node_orca)
        mesh = configuration.check(config_dir, secrets).mesh
    made = layout.make(
        mesh, options, config_dir=config_dir, state_dir=state_dir, ports=ports, envoy=envoy()
    )
    if in_the_way := port_choice.taken(made.sockets):
        raise PortsTakenError(f"another program listens on {', '.join(in_the_way)}")
    _write(made, topology.gateways(mesh, regions=options.regions))
    return made


def _documented(mesh: ir.Mesh, options: Options) -> port_choice.Ports:
    gateways = topology.gateways(mesh, regions=options.regions)
    return port_choice.documented(
        {gateway.name: gateway.port for gateway in gateways}, orca_port=mesh.orca_port
    )


def _free(mesh: ir.Mesh, options: Options) -> port_choice.Ports:
    gateways = topology.gateways(mesh, regions=options.regions)
    places = topology.nodes(mesh, per_pool=options.nodes_per_pool, regions=options.regions)
    return port_choice.free(
        [gateway.name for gateway in gateways], addresses=[place.address for place in places]
    )


def _write(made: Plan, gateways: Sequence[ir.Gateway]) -> None:
    """Create the folders, the Envoys' bootstraps and the plan itself."""
    home = Path(made.state_dir)
    nodes = [f"nodes/{node.place.name}" for node in made.nodes]
    for folder in ("gateways", "logs", "xds", plan.HELD_DIR, *nodes):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for gateway, place in zip(gateways, made.gateways, strict=True):
        content = bootstrap(
            gateway,
            zone=place.zone,
            xds=("127.0.0.1", made.ports.xds),
            admin=("127.0.0.1", place.admin_port),
        )
        text = msgspec.json.format(msgspec.json.encode(content), indent=1)
        plan.write_whole(Path(place.bootstrap_file), text)
    plan.write(made)
