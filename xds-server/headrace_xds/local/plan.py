"""What a local mesh consists of, decided before anything starts and kept in its state directory."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from headrace_xds.local import topology
from headrace_xds.local.ports import Ports

PLAN_FILE = "plan.json"
RECORD_FILE = "processes.json"
HELD_DIR = "held"
"""A program with a file of its name in here is not started again when it ends."""
DEFAULT_STATE_DIR = Path(".headrace")
XDS = "xds"
"""Name of the control server among the programs."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person or a test asked for."""

    config_dir: str
    ports: Literal["documented", "auto"] = "documented"
    nodes_per_pool: int = 2
    regions: tuple[str, ...] = ()
    cache_dir: str = ""
    secrets_dir: str = ""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One process: started in the order of stages, stopped in the reverse."""

    name: str
    argv: tuple[str, ...]
    stage: int
    environment: Mapping[str, str] = {}


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU node and the model versions it is to answer for."""

    place: topology.NodePlace
    versions: tuple[tuple[str, int], ...]


class GatewayPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway: its Envoy's sockets and the file it starts from."""

    name: str
    region: str
    zone: str
    address: str
    port: int
    admin_port: int
    bootstrap_file: str
    certificate_file: str = ""
    """What callers trust it by; empty where they speak to it in the clear."""
    asks_callers: bool = False
    """Callers must show a certificate, too."""

    @property
    def url(self) -> str:
        """Where callers reach it."""
        scheme = "https" if self.certificate_file else "http"
        return f"{scheme}://{self.address}:{self.port}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A local mesh in full: equal options on equal configuration give an equal plan."""

    options: Options
    config_dir: str
    state_dir: str
    runtime_dir: str
    ports: Ports
    nodes: tuple[Node, ...]
    gateways: tuple[GatewayPlace, ...]
    programs: tuple[Program, ...]

    @property
    def sockets(self) -> tuple[tuple[str, int], ...]:
        """Every address and port that something of the mesh listens on."""
        ports = self.ports
        of_node = (ports.node_http, ports.node_grpc, ports.node_orca, ports.node_metrics)
        return (
            *(("127.0.0.1", port) for port in (ports.xds, ports.admin)),
            *(("127.0.0.1", gateway.admin_port) for gateway in self.gateways),
            *((gateway.address, gateway.port) for gateway in self.gateways),
            *((node.place.address, port) for node in self.nodes for port in of_node),
        )

    @property
    def admin_url(self) -> str:
        """Where the admin API is."""
        return f"http://127.0.0.1:{self.ports.admin}"


def runtime_dir(state_dir: Path) -> Path:
    """Folder for sockets: a short path, since a socket's path may have 107 bytes, and always the
    same for a state directory, so that what a killed run left there is found again."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    mark = hashlib.blake2b(str(state_dir.resolve()).encode(), digest_size=5).hexdigest()
    return Path(base) / f"headrace-{mark}"


def log_file(state_dir: Path, program: str) -> Path:
    """Where a program's output goes."""
    return state_dir / "logs" / f"{file_name(program)}.log"


def file_name(program: str) -> str:
    """A program's name as a file name."""
    return program.replace("/", "-")


def write(plan: Plan) -> None:
    """Keep the plan in its state directory."""
    write_whole(
        Path(plan.state_dir) / PLAN_FILE, msgspec.json.format(msgspec.json.encode(plan), indent=1)
    )


def read(state_dir: Path) -> Plan | None:
    """The plan kept in a state directory; None when there is none or an older release wrote it."""
    try:
        return msgspec.json.decode((state_dir / PLAN_FILE).read_bytes(), type=Plan)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that a reader never sees half of it."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)
