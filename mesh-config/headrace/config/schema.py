"""The mesh language, v1alpha1: its kinds, fields, docs and defaults.

JSON Schema, ``headrace explain`` and defaulting derive from these types. Field names are camelCase
in YAML. Durations and sizes stay text here; ``resolve`` turns them into seconds and bytes.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from headrace.config.runtime import RuntimeSpec
from headrace.config.values import (
    Address,
    Balance,
    Datatype,
    Duration,
    GpuType,
    Header,
    HeaderValue,
    Host,
    Name,
    Percent,
    Port,
    Sha256,
    Size,
    TensorName,
    Tier,
    VersionNumber,
    Wait,
    doc,
)

ApiVersion = Literal["headrace.dev/v1alpha1"]
API_VERSION: Final[ApiVersion] = "headrace.dev/v1alpha1"


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the mesh language: strict, frozen, camelCase."""


class Metadata(Struct, frozen=True):
    """What identifies an object."""

    name: Annotated[Name, doc("What other objects call it by; one of its kind has it.")]
    labels: Annotated[dict[str, str], doc("Words to find it by; the mesh reads none.")] = {}
    annotations: Annotated[
        dict[str, str], doc("Notes of people and tools; the mesh reads none.")
    ] = {}


# --- Mesh -------------------------------------------------------------------------------------


class TlsSpec(Struct, frozen=True):
    """What a gateway proves itself with: folders of the control server's ``--secrets``."""

    secret: Annotated[Name, doc("Secret with tls.crt and tls.key: the gateway's certificate.")]
    client_ca: Annotated[
        Name | None,
        doc("Secret with ca.crt: callers must show a certificate that it signed; none: anybody."),
    ] = None


class GatewaySpec(Struct, frozen=True):
    """One Envoy at the edge of a region."""

    name: Annotated[Name, doc("Name of the gateway; its Envoy connects as gateway/NAME.")]
    address: Annotated[Address, doc("IP address that callers connect to.")] = "127.0.0.1"
    port: Annotated[int, doc("TCP port for callers; 0 takes a free one.", ge=0, le=65535)] = 10000
    tls: Annotated[TlsSpec | None, doc("How callers speak TLS to it; none: in the clear.")] = None


class RegionSpec(Struct, frozen=True):
    """A region: its zones, its gateways, and where its traffic goes when it has no ready node."""

    name: Annotated[Name, doc("Name of the region; pools say it.")]
    zones: Annotated[tuple[Name, ...], doc("Its zones; a pool is in one of them.", min_length=1)]
    gateways: Annotated[tuple[GatewaySpec, ...], doc("Its Envoys, which callers reach.")] = ()
    failover: Annotated[
        tuple[Name, ...],
        doc("Regions that take over when few nodes are healthy, first choice first. Empty: none."),
    ] = ()


class MeshSpec(Struct, frozen=True):
    """The mesh as a whole."""

    regions: Annotated[tuple[RegionSpec, ...], doc("Every region of the mesh.", min_length=1)]
    orca_port: Annotated[
        Port, doc("Port of every GPU node's load reports: Envoy takes one a cluster.")
    ] = 18082
    runtime: RuntimeSpec = RuntimeSpec()


# --- Pool -------------------------------------------------------------------------------------


class GpuSpec(Struct, frozen=True):
    """The accelerator of every node in a pool; ``cpu`` where there is none."""

    type: Annotated[GpuType, doc("Kind of accelerator, such as t4, a100 or cpu.")]
    memory: Annotated[Size, doc("Memory of one accelerator.")] = "16GiB"


class StaticNode(Struct, frozen=True):
    """A node that is there without registering: its front door and load reports."""

    name: Annotated[Name, doc("Name of the node; no other node of the mesh has it.")]
    address: Annotated[Address, doc("IP address of its front door and of its load reports.")]
    http_port: Annotated[Port, doc("TCP port of its front door for HTTP.")]
    grpc_port: Annotated[Port, doc("TCP port of its front door for gRPC.")]
    orca_port: Annotated[Port, doc("TCP port of its load reports.")]


class DiscoverySpec(Struct, frozen=True):
    """How the pool's nodes become known."""

    type: Annotated[
        Literal["registered", "static"],
        doc("registered: GPU sidecars that connect; static: the nodes listed here."),
    ] = "registered"
    nodes: Annotated[tuple[StaticNode, ...], doc("Nodes of a static pool.")] = ()


class PoolSpec(Struct, frozen=True):
    """GPU nodes of one kind in one zone."""

    region: Annotated[Name, doc("Region its nodes are in, as the Mesh names it.")]
    zone: Annotated[Name, doc("Zone its nodes are in, one of the region.")]
    gpu: GpuSpec
    discovery: DiscoverySpec = DiscoverySpec()


# --- Model ------------------------------------------------------------------------------------


class TensorSpec(Struct, frozen=True):
    """An input or output of the model, without the batch dimension."""

    name: Annotated[TensorName, doc("Name of the tensor in requests and answers.")]
    datatype: Annotated[Datatype, doc("Type of its elements.")]
    shape: Annotated[
        tuple[Annotated[int, Meta(ge=-1)], ...],
        doc("Size of each dimension, the batch left out; -1 is any.", max_length=16),
    ]


class VersionSpec(Struct, frozen=True):
    """One version of a model: what runs it and the weights it runs."""

    version: Annotated[VersionNumber, doc("Number of the version; a request can pin it.")]
    executor: Annotated[Name, doc("What runs it: a folder of model-server/models, such as vision.")]
    artifact: Annotated[str, doc("Its weights, such as efficientnet-lite0.")] = ""
    instances: Annotated[int, doc("Copies on each node.", ge=1, le=64)] = 1
    threads: Annotated[int, doc("CPU threads of each copy.", ge=1, le=256)] = 1
    parameters: Annotated[dict[str, str], doc("Settings for the executor.")] = {}


class BatchingSpec(Struct, frozen=True):
    """How requests are grouped on a node, and how many may wait."""

    max_batch_size: Annotated[int, doc("Requests run at once; 0: no batching.", ge=0, le=1024)] = 8
    max_queue_delay: Annotated[Wait, doc("Time a request may wait for company.")] = "2ms"
    max_queue_size: Annotated[
        int, doc("Requests that may wait on one node; the next is refused.", ge=1, le=100_000)
    ] = 64
    queue_timeout: Annotated[
        Duration, doc("Time in the queue after which a request is refused.")
    ] = "2s"


class SloSpec(Struct, frozen=True):
    """What callers may expect."""

    latency: Annotated[Duration, doc("Time in which 95 of 100 requests are answered.")] = "300ms"


class PlacementSpec(Struct, frozen=True):
    """Where the model's versions are held."""

    pools: Annotated[tuple[Name, ...], doc("Where all versions are. Empty: every pool.")] = ()


class BreakerSpec(Struct, frozen=True):
    """What one gateway lets be in flight to one version."""

    max_requests: Annotated[
        int, doc("Requests in flight; the next is refused.", ge=1, le=1_000_000)
    ] = 1024
    max_pending_requests: Annotated[
        int, doc("Requests that wait for a connection; the next is refused.", ge=1, le=1_000_000)
    ] = 256


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model: its interface, its versions and how they are served."""

    api: Annotated[Literal["oip"], doc("Protocol: the Open Inference Protocol.")] = "oip"
    inputs: Annotated[
        tuple[TensorSpec, ...], doc("Tensors that a request carries.", min_length=1, max_length=64)
    ]
    outputs: Annotated[
        tuple[TensorSpec, ...], doc("Tensors that an answer carries.", min_length=1, max_length=64)
    ]
    versions: Annotated[
        tuple[VersionSpec, ...],
        doc("Versions that its nodes hold, all at once.", min_length=1, max_length=100),
    ]
    aliases: Annotated[
        dict[Name, VersionNumber], doc("Names for versions, such as stable: 1.")
    ] = {}
    batching: BatchingSpec = BatchingSpec()
    slo: SloSpec = SloSpec()
    placement: PlacementSpec = PlacementSpec()
    breaker: BreakerSpec = BreakerSpec()
    balance: Balance = "utilization"
    idempotent: Annotated[
        bool,
        doc(
            "Running a request twice is harmless, so one whose node died may run on another. "
            "True for pure functions of their inputs."
        ),
    ] = False


# --- Route ------------------------------------------------------------------------------------


class HeaderMatch(Struct, frozen=True):
    """A request header with exactly this value."""

    name: Annotated[Header, doc("Name of the request header, in lower case.")]
    value: Annotated[HeaderValue, doc("Value that the header must have, letter by letter.")]


class MatchSpec(Struct, frozen=True):
    """Which of the model's requests the route takes. Everything given must hold."""

    hosts: Annotated[
        tuple[Host, ...], doc("Hosts that callers name. Empty: any.", max_length=64)
    ] = ()
    headers: Annotated[
        tuple[HeaderMatch, ...], doc("Headers it must have, all of them.", max_length=16)
    ] = ()


class ArmSpec(Struct, frozen=True):
    """One side of a split: a version or an alias, and its share."""

    version: Annotated[VersionNumber | None, doc("Its number; or give an alias.")] = None
    alias: Annotated[Name | None, doc("Its name in the model; or give a version.")] = None
    weight: Annotated[int, doc("Its share beside the others; 0: none.", ge=0, le=10_000)] = 100


class StickySpec(Struct, frozen=True):
    """What keeps a caller on one side of a split; without the header the side is random."""

    header: Annotated[Header, doc("Requests with one value of this header go to one side.")]


class MirrorSpec(Struct, frozen=True):
    """A copy of the traffic for another version; its answers are thrown away."""

    version: Annotated[VersionNumber | None, doc("Its number; or give an alias.")] = None
    alias: Annotated[Name | None, doc("Its name in the model; or give a version.")] = None
    percent: Annotated[Percent, doc("Of 100 requests, so many are copied.")] = 100
    max_requests: Annotated[
        int, doc("Copies in flight from one gateway; more are dropped.", ge=1, le=10_000)
    ] = 16


class RetrySpec(Struct, frozen=True):
    """Trying again on another node, only where the first did not run the request."""

    attempts: Annotated[int, doc("Attempts after the first; 0: none.", ge=0, le=3)] = 2
    budget_percent: Annotated[
        Percent, doc("Retries in flight, of 100 requests in flight; more are not made.")
    ] = 20
    per_try_timeout: Annotated[
        Duration | None, doc("Time that one attempt may take. None: as long as the whole request.")
    ] = None


class RateLimitSpec(Struct, frozen=True):
    """Requests one gateway lets through on this route; more are refused with retry-after."""

    requests: Annotated[int, doc("Requests let through in each period.", ge=1, le=10_000_000)]
    per: Annotated[Duration, doc("Length of a period.")] = "1s"
    burst: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        doc("Requests let through at once, after a rest. None: as many as requests."),
    ] = None


class RouteSpec(Struct, frozen=True):
    """How requests for a model are matched, split, copied, retried and limited."""

    model: Annotated[Name, doc("Model that the requests ask for.")]
    match: MatchSpec = MatchSpec()
    split: Annotated[
        tuple[ArmSpec, ...],
        doc(
            "Stable first, canary last. Empty: the alias stable, or the only version.",
            max_length=16,
        ),
    ] = ()
    sticky: StickySpec | None = None
    mirror: MirrorSpec | None = None
    timeout: Annotated[
        Duration, doc("Time for the whole request, retries included. A stream has none.")
    ] = "30s"
    retry: RetrySpec = RetrySpec()
    rate_limit: RateLimitSpec | None = None


# --- Tenant -----------------------------------------------------------------------------------


class ApiKey(Struct, frozen=True):
    """A key by its SHA-256, so that the configuration holds no secret."""

    sha256: Annotated[Sha256, doc("SHA-256 of the key.")]


class TenantSpec(Struct, frozen=True):
    """Who may call."""

    tier: Tier = "standard"
    api_keys: Annotated[
        tuple[ApiKey, ...], doc("Keys that it calls with, any of them.", max_length=64)
    ] = ()


# --- Documents --------------------------------------------------------------------------------


class Mesh(Struct, frozen=True, tag_field="kind", tag="Mesh"):
    """Regions and gateways. A configuration has exactly one."""

    api_version: Annotated[ApiVersion, doc("Version of this language.")]
    metadata: Metadata
    spec: MeshSpec


class Pool(Struct, frozen=True, tag_field="kind", tag="Pool"):
    """A set of GPU nodes."""

    api_version: Annotated[ApiVersion, doc("Version of this language.")]
    metadata: Metadata
    spec: PoolSpec


class Model(Struct, frozen=True, tag_field="kind", tag="Model"):
    """A model and its versions."""

    api_version: Annotated[ApiVersion, doc("Version of this language.")]
    metadata: Metadata
    spec: ModelSpec


class Route(Struct, frozen=True, tag_field="kind", tag="Route"):
    """The way from a request to a version of a model."""

    api_version: Annotated[ApiVersion, doc("Version of this language.")]
    metadata: Metadata
    spec: RouteSpec


class Tenant(Struct, frozen=True, tag_field="kind", tag="Tenant"):
    """A caller of the mesh."""

    api_version: Annotated[ApiVersion, doc("Version of this language.")]
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
