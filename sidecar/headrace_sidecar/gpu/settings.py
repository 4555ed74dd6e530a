"""What the command line of ``headrace-gpu`` says, as one value."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one GPU sidecar; port 0 takes a free one."""

    node: str
    pool: str
    region: str
    zone: str
    address: str
    http_port: int
    grpc_port: int
    orca_port: int
    metrics_port: int
    xds: str
    agent_socket: Path
    triton_socket: Path
    state_dir: Path
    ports_file: Path | None
    drain_grace_s: float
    drain_deadline_s: float


def parser(*, grace_s: float, deadline_s: float) -> argparse.ArgumentParser:
    """Command line of the program."""
    made = argparse.ArgumentParser(
        prog="headrace-gpu",
        description="The sidecar of a GPU node: registers with the control server, holds the "
        "model versions it is told to, and guards Triton.",
    )
    made.add_argument("--node", required=True, help="name of this node, unique in the mesh")
    made.add_argument("--pool", required=True, help="pool that the node belongs to")
    made.add_argument("--region", required=True)
    made.add_argument("--zone", required=True)
    made.add_argument("--address", default="127.0.0.1", help="address to listen on and to be told")
    made.add_argument("--http-port", type=int, default=18080)
    made.add_argument("--grpc-port", type=int, default=18081)
    made.add_argument("--orca-port", type=int, default=18082, help="load reports")
    made.add_argument("--metrics-port", type=int, default=18083, help="Prometheus metrics")
    made.add_argument("--xds", required=True, help="HOST:PORT of the control server")
    made.add_argument("--agent-socket", type=Path, required=True, help="model server's agent")
    made.add_argument("--triton-socket", type=Path, required=True, help="Triton's gRPC socket")
    made.add_argument("--state-dir", type=Path, required=True)
    made.add_argument("--ports-file", type=Path, help="written once everything listens")
    made.add_argument(
        "--drain-grace",
        dest="drain_grace_s",
        metavar="SECONDS",
        type=float,
        default=grace_s,
        help="keep serving so long after SIGTERM (default: %(default)s)",
    )
    made.add_argument(
        "--drain-deadline",
        dest="drain_deadline_s",
        metavar="SECONDS",
        type=float,
        default=deadline_s,
        help="exit at the latest so long after SIGTERM (default: %(default)s)",
    )
    return made


def settings(arguments: Sequence[str] | None, *, grace_s: float, deadline_s: float) -> Settings:
    """Settings in a command line; ends the program with its usage when there are none."""
    parsed = parser(grace_s=grace_s, deadline_s=deadline_s).parse_args(arguments)
    return msgspec.convert(vars(parsed), Settings)
