"""The mesh language, v1alpha1: its kinds, fields, docs and defaults.

JSON Schema, ``headrace explain`` and defaulting derive from these types. Field names are camelCase
in YAML. Durations and sizes stay text here; ``resolve`` turns them into seconds and bytes.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from headrace.config.values import (
    Address,
    Balance,
    Duration,
    Header,
    Host,
    Name,
    Percent,
    Port,
    Size,
    Tier,
    VersionNumber,
    Wait,
)

ApiVersion = Literal["headrace.dev/v1alpha1"]
API_VERSION: Final[ApiVersion] = "headrace.dev/v1alpha1"


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the mesh language: strict, frozen, camelCase."""


class Metadata(Struct, frozen=True):
    """What identifies an object."""

    name: Name
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


# --- Mesh -------------------------------------------------------------------------------------


class GatewaySpec(Struct, frozen=True):
    """One Envoy at the edge of a region."""

    name: Name
    address: Address = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="0 takes a free port.")] = 10000


class RegionSpec(Struct, frozen=True):
    """A region: its zones, its gateways, and where its traffic goes when it has no ready node."""

    name: Name
    zones: Annotated[tuple[Name, ...], Meta(min_length=1)]
    gateways: tuple[GatewaySpec, ...] = ()
    failover: Annotated[
        tuple[Name, ...], Meta(description="Other regions, first choice first. Empty: none.")
    ] = ()


class MeshSpec(Struct, frozen=True):
    """The mesh as a whole."""

    regions: Annotated[tuple[RegionSpec, ...], Meta(min_length=1)]
    orca_port: Annotated[
        Port, Meta(description="Port of every GPU node's load reports: Envoy takes one a cluster.")
    ] = 18082


# --- Pool -------------------------------------------------------------------------------------


class GpuSpec(Struct, frozen=True):
    """The accelerator of every node in a pool; ``cpu`` where there is none."""

    type: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,32}$", description="Such as t4, a100, cpu.")]
    memory: Size = "16GiB"


class StaticNode(Struct, frozen=True):
    """A node that is there without registering: its front door and load reports."""

    name: Name
    address: Address
    http_port: Port
    grpc_port: Port
    orca_port: Port


class DiscoverySpec(Struct, frozen=True):
    """How the pool's nodes become known."""

    type: Annotated[
        Literal["registered", "static"],
        Meta(description="registered: GPU sidecars that connect; static: the nodes listed here."),
    ] = "registered"
    nodes: tuple[StaticNode, ...] = ()


class PoolSpec(Struct, frozen=True):
    """GPU nodes of one kind in one zone."""

    region: Name
    zone: Name
    gpu: GpuSpec
    discovery: DiscoverySpec = DiscoverySpec()


# --- Model ------------------------------------------------------------------------------------


class TensorSpec(Struct, frozen=True):
    """An input or output of the model, without the batch dimension."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$")]
    datatype: Literal[
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
        "FP16", "FP32", "FP64", "BF16", "BYTES",
    ]  # fmt: skip
    shape: Annotated[
        tuple[Annotated[int, Meta(ge=-1)], ...],
        Meta(max_length=16, description="-1 is a dimension of any size."),
    ]


class VersionSpec(Struct, frozen=True):
    """One version of a model: what runs it and the weights it runs."""

    version: VersionNumber
    executor: Annotated[
        Name, Meta(description="What runs it: a folder of model-server/models, such as vision.")
    ]
    artifact: Annotated[str, Meta(description="Its weights, such as efficientnet-lite0.")] = ""
    instances: Annotated[int, Meta(ge=1, le=64, description="Copies on each node.")] = 1
    threads: Annotated[int, Meta(ge=1, le=256, description="CPU threads of each copy.")] = 1
    parameters: Annotated[dict[str, str], Meta(description="Passed to the executor.")] = {}


class BatchingSpec(Struct, frozen=True):
    """How requests are grouped on a node, and how many may wait."""

    max_batch_size: Annotated[int, Meta(ge=0, le=1024, description="0: no batching.")] = 8
    max_queue_delay: Annotated[
        Wait, Meta(description="How long a request may wait for company.")
    ] = "2ms"
    max_queue_size: Annotated[
        int, Meta(ge=1, le=100_000, description="Waiting requests; the next is refused.")
    ] = 64
    queue_timeout: Annotated[
        Duration, Meta(description="A request that waited longer is refused.")
    ] = "2s"


class SloSpec(Struct, frozen=True):
    """What callers may expect."""

    latency: Annotated[Duration, Meta(description="p95 of a whole request.")] = "300ms"


class PlacementSpec(Struct, frozen=True):
    """Where the model's versions are held."""

    pools: Annotated[tuple[Name, ...], Meta(description="Empty: every pool.")] = ()


class BreakerSpec(Struct, frozen=True):
    """What one gateway lets be in flight to one version."""

    max_requests: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    max_pending_requests: Annotated[int, Meta(ge=1, le=1_000_000)] = 256


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model: its interface, its versions and how they are served."""

    api: Literal["oip"] = "oip"
    inputs: Annotated[tuple[TensorSpec, ...], Meta(min_length=1, max_length=64)]
    outputs: Annotated[tuple[TensorSpec, ...], Meta(min_length=1, max_length=64)]
    versions: Annotated[tuple[VersionSpec, ...], Meta(min_length=1, max_length=100)]
    aliases: Annotated[
        dict[Name, VersionNumber], Meta(description="Names for versions, such as stable: 1.")
    ] = {}
    batching: BatchingSpec = BatchingSpec()
    slo: SloSpec = SloSpec()
    placement: PlacementSpec = PlacementSpec()
    breaker: BreakerSpec = BreakerSpec()
    balance: Balance = "utilization"
    idempotent: Annotated[
        bool,
        Meta(
            description="Running a request twice is harmless, so one whose node died may run on "
            "another. True for pure functions of their inputs."
        ),
    ] = False


# --- Route ------------------------------------------------------------------------------------


class HeaderMatch(Struct, frozen=True):
    """A request header with exactly this value."""

    name: Header
    value: Annotated[
        str,
        Meta(
            # What HTTP cannot carry in a header, or takes off its ends, no request could meet.
            pattern=r"^([^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?)?$",
            max_length=1024,
            extra={"hint": "write it quoted, without control characters or blanks at its ends"},
        ),
    ]


class MatchSpec(Struct, frozen=True):
    """Which of the model's requests the route takes. Everything given must hold."""

    hosts: Annotated[tuple[Host, ...], Meta(max_length=64, description="Empty: any host.")] = ()
    headers: Annotated[tuple[HeaderMatch, ...], Meta(max_length=16)] = ()


class ArmSpec(Struct, frozen=True):
    """One side of a split: a version or an alias, and its share."""

    version: VersionNumber | None = None
    alias: Name | None = None
    weight: Annotated[int, Meta(ge=0, le=10_000)] = 100


class StickySpec(Struct, frozen=True):
    """What keeps a caller on one side of a split; without the header the side is random."""

    header: Header


class MirrorSpec(Struct, frozen=True):
    """A copy of the traffic for another version; its answers are thrown away."""

    version: VersionNumber | None = None
    alias: Name | None = None
    percent: Percent = 100
    max_requests: Annotated[
        int, Meta(ge=1, le=10_000, description="Copies in flight; more are dropped.")
    ] = 16


class RetrySpec(Struct, frozen=True):
    """Trying again on another node, only where the first did not run the request."""

    attempts: Annotated[int, Meta(ge=0, le=3)] = 2
    budget_percent: Annotated[Percent, Meta(description="Retries, of the requests in flight.")] = 20
    per_try_timeout: Duration | None = None


class RateLimitSpec(Struct, frozen=True):
    """Requests one gateway lets through on this route; more are refused with retry-after."""

    requests: Annotated[int, Meta(ge=1, le=10_000_000)]
    per: Duration = "1s"
    burst: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None


class RouteSpec(Struct, frozen=True):
    """How requests for a model are matched, split, copied, retried and limited."""

    model: Name
    match: MatchSpec = MatchSpec()
    split: Annotated[
        tuple[ArmSpec, ...],
        Meta(max_length=16, description="Stable first, canary last. Empty: the alias stable."),
    ] = ()
    sticky: StickySpec | None = None
    mirror: MirrorSpec | None = None
    timeout: Duration = "30s"
    retry: RetrySpec = RetrySpec()
    rate_limit: RateLimitSpec | None = None


# --- Tenant -----------------------------------------------------------------------------------


class ApiKey(Struct, frozen=True):
    """A key by its SHA-256, so that the configuration holds no secret."""

    sha256: Annotated[
        str,
        Meta(
            pattern=r"^[0-9a-f]{64}$",
            extra={"hint": "write 64 lower-case hex digits, as printf KEY | sha256sum gives"},
        ),
    ]


class TenantSpec(Struct, frozen=True):
    """Who may call."""

    tier: Tier = "standard"
    api_keys: Annotated[tuple[ApiKey, ...], Meta(max_length=64)] = ()


# --- Documents --------------------------------------------------------------------------------


class Mesh(Struct, frozen=True, tag_field="kind", tag="Mesh"):
    """Regions and gateways. A configuration has exactly one."""

    api_version: ApiVersion
    metadata: Metadata
    spec: MeshSpec


class Pool(Struct, frozen=True, tag_field="kind", tag="Pool"):
    """A set of GPU nodes."""

    api_version: ApiVersion
    metadata: Metadata
    spec: PoolSpec


class Model(Struct, frozen=True, tag_field="kind", tag="Model"):
    """A model and its versions."""

    api_version: ApiVersion
    metadata: Metadata
    spec: ModelSpec


class Route(Struct, frozen=True, tag_field="kind", tag="Route"):
    """The way from a request to a version of a model."""

    api_version: ApiVersion
    metadata: Metadata
    spec: RouteSpec


class Tenant(Struct, frozen=True, tag_field="kind", tag="Tenant"):
    """A caller of the mesh."""

    api_version: ApiVersion
    metadata: Metadata
    spec: TenantSpec


Object = Mesh | Pool | Model | Route | Tenant
KINDS: dict[str, type[Object]] = {
    "Mesh": Mesh,
    "Pool": Pool,
    "Model": Model,
    "Route": Route,
    "Tenant": Tenant,
}
