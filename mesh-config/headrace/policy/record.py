"""What the ledger keeps about GPU nodes, so that readiness survives the control server."""

import msgspec


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a GPU node's sidecar listens, and where the node stands."""

    name: str
    pool: str
    region: str
    zone: str
    address: str
    http_port: int
    grpc_port: int
    orca_port: int


class HeldRecord(msgspec.Struct, frozen=True):
    """An assignment that a node acknowledged: its name, its content hash and its attempt."""

    name: str
    version: str
    attempt: int


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node and what it holds."""

    info: NodeInfo
    held: tuple[HeldRecord, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Every node that was known, and every assignment that was wanted."""

    nodes: tuple[NodeRecord, ...] = ()
    versions: tuple[str, ...] = ()
