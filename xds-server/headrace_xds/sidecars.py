"""What a GPU sidecar says about its node when it connects."""

import ipaddress
import re
from typing import Any, Final

from headrace.policy.record import NodeInfo as GpuNode
from headrace_xds.messages import NodeInfo

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?")


def is_gpu(node: NodeInfo) -> bool:
    """Whether a client is a GPU sidecar."""
    return node.metadata.get("role") == "gpu"


def gpu_node(node: NodeInfo) -> GpuNode | str:
    """The node behind a sidecar, or what is wrong with its description."""
    metadata = node.metadata
    name, pool, address = (metadata.get(key) for key in ("node", "pool", "address"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or node.id != f"gpu/{name}":
        return f"metadata.node {name!r} is not the name in the node id {node.id!r}"
    if not isinstance(pool, str) or not pool:
        return "metadata needs pool"
    if not isinstance(address, str) or not _is_ip(address):
        # One address that Envoy cannot parse makes it refuse a whole endpoint response.
        return f"metadata.address {address!r} is not an IP address"
    ports = [_port(metadata.get(key)) for key in ("http_port", "grpc_port", "orca_port")]
    if None in ports:
        return "metadata needs http_port, grpc_port and orca_port, from 1 to 65535"
    http_port, grpc_port, orca_port = (port or 0 for port in ports)
    return GpuNode(
        name=name,
        pool=pool,
        region=node.region,
        zone=node.zone,
        address=address,
        http_port=http_port,
        grpc_port=grpc_port,
        orca_port=orca_port,
    )


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _port(value: Any) -> int | None:
    """Port in a metadata value: protobuf's Struct makes numbers floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == int(value) and 0 < value < 65536 else None
