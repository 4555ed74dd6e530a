"""The mesh after everything is looked up: proxy-neutral, frozen, seconds and bytes.

``resolve`` makes it from checked objects; ``translate`` makes Envoy resources from it. Equal IR
parts give equal resources, so encoded resources are cached by the part they came from.
"""

from typing import Literal

import msgspec

from headrace.assignment import Assignment

Balance = Literal["round-robin", "least-request", "utilization", "least-loaded"]


class Node(msgspec.Struct, frozen=True):
    """Anything of the IR: frozen, compared by value."""


class Source(Node, frozen=True):
    """Where in the YAML a part came from."""

    kind: str
    name: str
    file: str
    line: int


class Tls(Node, frozen=True):
    """Names of the secrets that a gateway speaks TLS with."""

    secret: str
    client_ca: str | None = None


class Gateway(Node, frozen=True):
    """One Envoy and the socket it listens on; without ``tls`` callers speak to it in the clear."""

    name: str
    region: str
    address: str
    port: int
    tls: Tls | None = None


class Region(Node, frozen=True):
    """A region and the order in which its traffic may leave it."""

    name: str
    zones: tuple[str, ...]
    gateways: tuple[Gateway, ...]
    failover: tuple[str, ...]


class GpuNode(Node, frozen=True):
    """The sockets of one GPU node's sidecar."""

    name: str
    pool: str
    address: str
    http_port: int
    grpc_port: int
    orca_port: int


class Pool(Node, frozen=True):
    """GPU nodes of one kind; ``nodes`` only where they are static."""

    name: str
    region: str
    zone: str
    gpu_type: str
    gpu_memory_bytes: int
    registered: bool
    nodes: tuple[GpuNode, ...]


class ServedVersion(Node, frozen=True):
    """One version of a model as gateways see it."""

    model: str
    version: int
    pools: tuple[str, ...]
    balance: Balance
    max_requests: int
    max_pending_requests: int
    retry_budget_percent: int
    idempotent: bool
    shadow_max_requests: int | None
    """Breaker of the shadow cluster; None when no route mirrors to this version."""
    assignment: Assignment
    source: Source


class Arm(Node, frozen=True):
    """One side of a split; the weights of a split sum to SPLIT_TOTAL."""

    version: int
    weight: int


class Mirror(Node, frozen=True):
    """Copy of the traffic to another version."""

    version: int
    percent: int


class RateLimit(Node, frozen=True):
    """Token bucket: ``burst`` tokens at most, ``requests`` more every ``per_s``."""

    requests: int
    per_s: float
    burst: int


class Retry(Node, frozen=True):
    """Attempts after the first, and the time each attempt may take."""

    attempts: int
    per_try_timeout_s: float | None


class Route(Node, frozen=True):
    """Requests for a model, how they are told apart, and where they go."""

    name: str
    model: str
    hosts: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    arms: tuple[Arm, ...]
    sticky_header: str | None
    mirror: Mirror | None
    timeout_s: float
    retry: Retry
    idempotent: bool
    rate_limit: RateLimit | None
    source: Source


class Tenant(Node, frozen=True):
    """A caller: the SHA-256 of its keys, as lower-case hex."""

    name: str
    tier: str
    key_hashes: tuple[str, ...]


class Runtime(Node, frozen=True):
    """Overrides for the whole mesh that are in effect at once; None leaves things as they are."""

    rate_limit_percent: int | None = None
    mirror_percent: int | None = None
    retry_percent: int | None = None
    ejection_percent: int | None = None
    least_loaded_bias: float | None = None
    source: Source | None = None
    """The Mesh, where it overrides anything."""


class Mesh(Node, frozen=True):
    """The whole configuration. Every tuple is sorted by name, routes by how narrow they match."""

    name: str
    orca_port: int
    regions: tuple[Region, ...]
    pools: tuple[Pool, ...]
    versions: tuple[ServedVersion, ...]
    routes: tuple[Route, ...]
    tenants: tuple[Tenant, ...]
    runtime: Runtime = Runtime()
