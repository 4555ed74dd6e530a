"""What enters and leaves the stream engine: requests, responses and what the ledger is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace_xds.translate.resources import Resource


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Who is at the other end of a stream; ``build`` is its version, such as ``1.40.0``."""

    id: str
    cluster: str = ""
    region: str = ""
    zone: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    build: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One ``DeltaDiscoveryRequest``; ``error`` is the text of a NACK and None for all else (R2)."""

    type_url: str
    nonce: str = ""
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    node: NodeInfo | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """One ``DeltaDiscoveryResponse``."""

    type_url: str
    nonce: str
    resources: tuple[Resource, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Acked:
    """The client holds this version; "" means that it let go of the resource."""

    type_url: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Nacked:
    """The client refused what these names were sent; always narrowed down to the culprits."""

    type_url: str
    names: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """What the client says it holds on its first request of a type, also when that is nothing."""

    type_url: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Left:
    """The client unsubscribed from ``*``."""

    type_url: str


Event = Acked | Nacked | Claimed | Left


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a stream is ended: the name of a gRPC status, and the reason with its remedy."""

    status: str
    message: str
