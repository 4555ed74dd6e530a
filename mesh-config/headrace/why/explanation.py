"""What ``why`` answers: every decision about one request, for programs and for people."""

from typing import Literal

import msgspec

from headrace.routing import Kind

DecidedBy = Literal["", "pin", "only", "sticky", "random", "node"]
"""What chose the cluster; empty where none is chosen."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an explanation."""


class Step(Part, frozen=True, kw_only=True):
    """One decision in words, and the place in the YAML that made it."""

    topic: str
    says: str
    place: str = ""
    """``file:line``; empty where no YAML has a say."""
    notes: tuple["Step", ...] = ()


class Side(Part, frozen=True, kw_only=True):
    """A version that may get the request, with its share of all weights."""

    version: int
    weight: int
    cluster: str


class Endpoint(Part, frozen=True, kw_only=True):
    """A node that serves a cluster."""

    node: str
    pool: str
    address: str
    port: int
    weight: int = 1
    health: str = "healthy"


class Priority(Part, frozen=True, kw_only=True):
    """Nodes of one region; those of the next priority are used when too few here are healthy."""

    priority: int
    region: str
    pools: tuple[str, ...]
    endpoints: tuple[Endpoint, ...] = ()


class Copy(Part, frozen=True, kw_only=True):
    """A copy of the request for another version."""

    cluster: str
    percent: int


class Bucket(Part, frozen=True, kw_only=True):
    """The token bucket that the request takes a token from."""

    name: str
    requests: int
    per_s: float
    burst: int


class Explanation(Part, frozen=True, kw_only=True):
    """Where a request goes and why, or who refuses it."""

    gateway: str = ""
    region: str = ""
    kind: Kind = "http"
    tenant: str = ""
    """Empty where the caller needs no key, or has no right one."""
    tier: str = ""
    model: str = ""
    pin: int | None = None
    """Version that the request itself asks for."""
    route: str = ""
    sides: tuple[Side, ...] = ()
    decided_by: DecidedBy = ""
    version: int | None = None
    """Version that gets the request; None where it is random, or none does."""
    cluster: str = ""
    mirror: Copy | None = None
    rate_limit: Bucket | None = None
    timeout_s: float | None = None
    """None for streams, and for what is refused."""
    retries: int = 0
    priorities: tuple[Priority, ...] = ()
    refusal: str = ""
    """Code of the refusal by the gateway; empty where it lets the request through."""
    status: int = 200
    """HTTP status of that refusal."""
    grpc_status: int = 0
    node_refusal: str = ""
    """Code of the refusal that a node would answer with; empty where it would try."""
    steps: tuple[Step, ...] = ()
