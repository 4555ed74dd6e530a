"""gRPC methods of xDS: the aggregated ones, and those that serve one type, in both variants."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace_xds.messages import Variant
from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    LISTENER,
    ROUTES,
    RUNTIME,
    SCOPES,
    SECRET,
)

_SERVICES: Final = (
    # Service, what its methods serve, and the one type they are for.
    ("discovery.v3.AggregatedDiscoveryService", "AggregatedResources", ""),
    ("cluster.v3.ClusterDiscoveryService", "Clusters", CLUSTER),
    ("endpoint.v3.EndpointDiscoveryService", "Endpoints", ENDPOINTS),
    ("secret.v3.SecretDiscoveryService", "Secrets", SECRET),
    ("listener.v3.ListenerDiscoveryService", "Listeners", LISTENER),
    ("route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", SCOPES),
    ("route.v3.RouteDiscoveryService", "Routes", ROUTES),
    ("extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", EXTENSION),
    ("runtime.v3.RuntimeDiscoveryService", "Runtime", RUNTIME),
)


@dataclass(frozen=True, slots=True)
class Method:
    """One streaming method; ``only`` is the type that it implies, "" for all types."""

    service: str
    name: str
    variant: Variant
    only: str

    @property
    def path(self) -> str:
        """Path of its calls."""
        return f"/{self.service}/{self.name}"


def _all() -> Iterator[Method]:
    for service, what, only in _SERVICES:
        full = f"envoy.service.{service}"
        yield Method(full, f"Delta{what}", Variant.DELTA, only)
        yield Method(full, f"Stream{what}", Variant.SOTW, only)


METHODS: Final = tuple(_all())
