"""What travels between a delta-ADS client and its server, and what the client tells its owner."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Who this client is; sent on the first request of every stream."""

    id: str
    cluster: str = ""
    region: str = ""
    zone: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    build: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One ``DeltaDiscoveryRequest``; ``error`` is the NACK's text and None for anything else."""

    type_url: str
    nonce: str = ""
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_versions: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    node: NodeInfo | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """One resource in a response: the type URL and the bytes of its ``Any``."""

    name: str
    version: str
    type_url: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """One ``DeltaDiscoveryResponse``."""

    type_url: str
    nonce: str
    resources: tuple[Received, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """Make this resource true, then ``ack(nonce)``, or ``nack(nonce, why)`` after giving up.

    ``kind`` and ``value`` are the ``type_url`` and the JSON of its ``TypedStruct``.
    """

    nonce: str
    name: str
    version: str
    kind: str
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Removed:
    """Let go of this resource, then ``ack(nonce)``; the name may be unknown to the owner."""

    nonce: str
    name: str


class Handler(Protocol):
    """Owner of an ``AdsClient``. Methods are called on the event loop and must not block.

    ``nonce`` is opaque and stays good across reconnects. Answer each one once, in any order, at
    any later time. A newer call for the same name replaces the older one: the older nonce may
    still be answered, and that answer is dropped. The same version of the same name is handed
    over once, however often the stream breaks while the owner works on it.
    """

    def assigned(self, assigned: Assigned) -> None:
        """Begin to make a resource true."""

    def removed(self, removed: Removed) -> None:
        """Begin to let go of a resource."""

    def connected(self) -> None:
        """A stream to the server is open."""

    def disconnected(self, reason: str) -> None:
        """The stream ended; the client connects again by itself."""
