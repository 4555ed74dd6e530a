"""A resource as it is published: its bytes, and a version that is a hash of them."""

import hashlib
from dataclasses import dataclass
from typing import Final

from headrace import ir

_PREFIX: Final = "type.googleapis.com/"
LISTENER: Final = _PREFIX + "envoy.config.listener.v3.Listener"
ROUTES: Final = _PREFIX + "envoy.config.route.v3.RouteConfiguration"
CLUSTER: Final = _PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS: Final = _PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
EXTENSION: Final = _PREFIX + "envoy.config.core.v3.TypedExtensionConfig"

VERSION_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Resource:
    """One named resource; equal bytes have equal versions on every replica."""

    type_url: str
    name: str
    version: str
    body: bytes
    source: ir.Source | None = None
    """Object that a rejection by Envoy is reported on; None when it is the whole mesh."""


def resource(type_url: str, name: str, body: bytes, source: ir.Source | None = None) -> Resource:
    """Resource of serialised bytes."""
    version = hashlib.blake2b(body, digest_size=VERSION_BYTES).hexdigest()
    return Resource(type_url, name, version, body, source)
