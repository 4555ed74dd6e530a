"""Envoy resources written by hand, as small as they can be."""

from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from google.protobuf import json_format
from google.protobuf.message import Message

# Importing these makes their types known to json_format, which resolves ``@type`` by name.
from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401  # isort: skip
from envoy.extensions.filters.network.http_connection_manager.v3 import (  # noqa: F401  # isort: skip
    http_connection_manager_pb2,
)

from envoy.extensions.transport_sockets.tls.v3 import (  # noqa: F401  # isort: skip
    tls_pb2,
)

from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    Resource,
    resource,
)

HOST = "127.0.0.1"
ADS = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "15s"}
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_HCM = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
    ".HttpConnectionManager"
)

_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"


def _encode(type_url: str, name: str, message: Message, plain: dict[str, Any]) -> Resource:
    json_format.ParseDict(plain, message)
    return resource(type_url, name, message.SerializeToString(deterministic=True))


def cluster(name: str, **changes: Any) -> Resource:
    """A cluster that takes its endpoints over ADS."""
    plain = {
        "name": name,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": {"eds_config": ADS},
        **changes,
    }
    return _encode(CLUSTER, name, cluster_pb2.Cluster(), plain)


def endpoints(name: str, *ports: int, address: str = HOST, weight: int = 1) -> Resource:
    """Endpoints of a cluster on this machine."""
    members = [
        {
            "endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}},
            "load_balancing_weight": weight,
        }
        for port in ports
    ]
    plain = {"cluster_name": name, "endpoints": [{"lb_endpoints": members}] if members else []}
    return _encode(ENDPOINTS, name, endpoint_pb2.ClusterLoadAssignment(), plain)


def routes(name: str, target: str, **changes: Any) -> Resource:
    """A route configuration that sends everything to one cluster."""
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": target}}],
    }
    plain = {"name": name, "virtual_hosts": [host], **changes}
    return _encode(ROUTES, name, route_pb2.RouteConfiguration(), plain)


def tls(secret: str) -> dict[str, Any]:
    """Transport socket of a filter chain whose certificate comes over ADS."""
    given = {"name": secret, "sds_config": ADS}
    context = {"common_tls_context": {"tls_certificate_sds_secret_configs": [given]}}
    return {"name": "tls", "typed_config": {"@type": _TLS, **context}}


def listener(
    name: str, port: int, route_name: str, *, secret: str = "", **changes: Any
) -> Resource:
    """A listener that takes its routes over ADS, and its certificate where a secret is named."""
    manager = {
        "@type": _HCM,
        "stat_prefix": name,
        "rds": {"route_config_name": route_name, "config_source": ADS},
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
    }
    chain: dict[str, Any] = {"filters": [{"name": "http", "typed_config": manager}]}
    if secret:
        chain["transport_socket"] = tls(secret)
    plain = {
        "name": name,
        "address": {"socket_address": {"address": HOST, "port_value": port}},
        "filter_chains": [chain],
        **changes,
    }
    return _encode(LISTENER, name, listener_pb2.Listener(), plain)
