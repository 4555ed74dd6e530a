"""A resource as it is published: its bytes, and a version that is a hash of them."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from headrace import ir

_PREFIX: Final = "type.googleapis.com/"
LISTENER: Final = _PREFIX + "envoy.config.listener.v3.Listener"
ROUTES: Final = _PREFIX + "envoy.config.route.v3.RouteConfiguration"
CLUSTER: Final = _PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS: Final = _PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
EXTENSION: Final = _PREFIX + "envoy.config.core.v3.TypedExtensionConfig"
SCOPES: Final = _PREFIX + "envoy.config.route.v3.ScopedRouteConfiguration"
SECRET: Final = _PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret"
RUNTIME: Final = _PREFIX + "envoy.service.runtime.v3.Runtime"

VERSION_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Resource:
    """One named resource; equal bytes have equal versions on every replica."""

    type_url: str
    name: str
    version: str
    body: bytes = field(repr=False)
    sources: tuple[ir.Source, ...] = ()
    """Objects that it is made from; empty when that is the whole mesh."""

    def __hash__(self) -> int:
        """A hash of the version, which is one of the bytes; thousands are looked up at a time."""
        return hash(self.version)

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells this version from every other resource and version."""
        return self.type_url, self.name, self.version

    @property
    def source(self) -> ir.Source | None:
        """The first object that it is made from."""
        return self.sources[0] if self.sources else None


def resource(type_url: str, name: str, body: bytes, *sources: ir.Source) -> Resource:
    """Resource of serialised bytes."""
    version = hashlib.blake2b(body, digest_size=VERSION_BYTES).hexdigest()
    return Resource(type_url, name, version, body, sources)
