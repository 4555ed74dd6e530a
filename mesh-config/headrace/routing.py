"""What a gateway decides about a request: one place for the compiler, which writes it into routes,
and for ``why``, which tells it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from headrace import ir
from headrace.names import Protocol

Kind = Literal["http", "grpc", "stream"]
KINDS: Final[tuple[Kind, ...]] = ("stream", "grpc", "http")
"""Streams first: their path is one of those that gRPC takes."""
SERVICE: Final = "/inference.GRPCInferenceService/"
STREAM_METHOD: Final = "ModelStreamInfer"
STREAM_PATH: Final = SERVICE + STREAM_METHOD
MODEL_PREFIX: Final = "/v2/models/"

MODEL_METHODS: Final = (
    "ModelInfer",
    "ModelReady",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
)
"""Calls whose message names the model in field 1 and the version in field 2."""
OPEN_CALLS: Final = (
    SERVICE + "ServerLive",
    SERVICE + "ServerReady",
    SERVICE + "ModelReady",
    "/grpc.health.v1.Health/Check",
)
"""gRPC paths that need no key."""
NODE_PATHS: Final[tuple[tuple[str, Protocol], ...]] = (
    ("/v2", "http"),
    ("/v2/", "http"),
    ("/v2/health/live", "http"),
    ("/v2/health/ready", "http"),
    (SERVICE + "ServerLive", "grpc"),
    (SERVICE + "ServerReady", "grpc"),
    (SERVICE + "ServerMetadata", "grpc"),
    ("/grpc.health.v1.Health/Check", "grpc"),
)
"""Requests that name no model and that any node can answer."""
NODES_TIMEOUT_S: Final = 5.0
NODES_RETRY: Final = ir.Retry(attempts=2, per_try_timeout_s=None)
PINNED_TIMEOUT_S: Final = 30.0
"""For a pinned version whose model has no route that takes the request."""
PINNED_RETRY: Final = ir.Retry(attempts=2, per_try_timeout_s=None)


def protocol_of(kind: Kind) -> Protocol:
    """Protocol that requests of a kind leave by."""
    return "http" if kind == "http" else "grpc"


def host_pattern(hosts: Sequence[str]) -> str:
    """Pattern that the whole authority matches: one of the hosts, in any case, with any port."""
    pattern = "|".join(
        r".+" + re.escape(host[1:]) if host.startswith("*.") else re.escape(host) for host in hosts
    )
    return f"(?i:{pattern})(:[0-9]+)?"


def takes_all(route: ir.Route) -> bool:
    """Whether a route asks for nothing but its model, so that no request passes it by."""
    return not route.hosts and not route.headers


def reaches_pins_alone(routes: Iterable[ir.Route]) -> bool:
    """Whether a pinned version of the routes' model must be reached beside all of them."""
    return not any(takes_all(route) for route in routes)


def sides(route: ir.Route) -> tuple[ir.Arm, ...]:
    """Arms that get traffic, in the order in which they lie on the hash's range."""
    return tuple(arm for arm in route.arms if arm.weight > 0)


def is_mirrored(kind: Kind, *, pinned: bool) -> bool:
    """Whether a route's mirror copies requests of a kind.

    A stream is not mirrored: its copy would live as long, for answers that nobody reads.
    """
    return not pinned and kind != "stream"


def is_harmless(versions: Iterable[ir.ServedVersion]) -> bool:
    """Whether running a request twice is harmless whichever of a model's versions it reaches."""
    return all(served.idempotent for served in versions)


def ranks(region: ir.Region) -> dict[str, int]:
    """Rank of each region that a region's gateways may use: its own, then its failover order."""
    return {name: rank for rank, name in enumerate((region.name, *region.failover))}


def priorities(found: Iterable[int]) -> dict[int, int]:
    """Envoy's priority for each rank that has endpoints: Envoy rejects gaps, and a region may have
    no node of a cluster.
    """
    return {rank: index for index, rank in enumerate(sorted(set(found)))}
