"""What enters and leaves the stream engine: requests, responses and what the ledger is told."""

import enum
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


class Variant(enum.Enum):
    """How a client is told of changes: by what changed, or state of the world (SotW)."""

    DELTA = "delta"
    SOTW = "sotw"


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for anew, drops and answers, as a ``DeltaDiscoveryRequest`` says it.

    ``error`` is the text of a NACK and None for all else (R2).
    """

    type_url: str
    nonce: str = ""
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    node: NodeInfo | None = None
    returning: bool = False
    """The client has been served before and cannot say what it still holds."""


@dataclass(frozen=True, slots=True)
class SotwRequest:
    """One ``DiscoveryRequest``: always every name that is wanted, not only the new ones."""

    type_url: str
    nonce: str = ""
    names: tuple[str, ...] = ()
    version: str = ""
    error: str | None = None
    node: NodeInfo | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """One response; over SotW ``removed`` is not written: it says what is left out from now on."""

    type_url: str
    nonce: str
    resources: tuple[Resource, ...] = ()
    removed: tuple[str, ...] = ()
    variant: Variant = Variant.DELTA


@dataclass(frozen=True, slots=True)
class Acked:
    """The client holds these versions, by name; "" means that it let go of the resource."""

    type_url: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Nacked:
    """The client refused these versions, by name; always narrowed down to the culprits."""

    type_url: str
    versions: Mapping[str, str]
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
