"""Clusters: one per model version and protocol, its shadow, and the nodes as a whole.

Names, breakers and stamps differ; shapes do not, so each shape is authored once and filled in.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    CircuitBreakersThresholdsRetryBudget,
    Cluster,
    ClusterCommonLbConfig,
    ClusterDiscoveryType,
    ClusterEdsClusterConfig,
)
from envoy_data_plane.envoy.config.core.v3 import (
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    KeepaliveSettings,
)
from envoy_data_plane.envoy.config.core.v3 import (
    HttpProtocolOptions as CommonHttpProtocolOptions,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.v3 import Percent

from headrace import ir, limits, names
from headrace.names import Protocol
from headrace_xds.translate import resources
from headrace_xds.translate.balancing import policy
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.health import failure_matcher, health_check, outlier_detection
from headrace_xds.translate.packing import ads, pack, seconds
from headrace_xds.translate.resources import Resource, resource
from headrace_xds.translate.stamping import plain, stamp
from headrace_xds.translate.wire import Template, slot

PROTOCOLS: Final[tuple[Protocol, Protocol]] = ("http", "grpc")
MERGE_WINDOW_S: Final = 0.02
"""For so long Envoy collects changes of health and weight. By default it is a second, during which
a node that has just been added and passed its first check gets no request."""
CONNECT_TIMEOUT_S: Final = 0.5
BUFFER_BYTES: Final = 2**20
"""Buffered per upstream connection before the sender is paused. Bodies stream through it: retries
keep their copy in the request's own buffer, so it need not hold a whole body."""
STREAM_WINDOW_BYTES: Final = 2**20
CONNECTION_WINDOW_BYTES: Final = 16 * 2**20
HTTP_IDLE_S: Final = 30.0
"""Shorter than the keep-alive of any sidecar, so that a reused connection is not a closed one."""
RETRY_CONCURRENCY_MIN: Final = 3
RETRY_BUDGET_S: Final = 10.0
"""Retries are budgeted against the requests of so long. A node that dies loses all it holds at one
moment, when few others are in flight: a budget of that moment would refuse to rescue them."""
NODES_REQUESTS: Final = 256
_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


class _Shape(NamedTuple):
    """What the bytes of a model cluster depend on, apart from names."""

    protocol: Protocol
    balance: ir.Balance
    orca_port: int
    max_requests: int
    max_pending_requests: int
    retry_budget_percent: int


def model_cluster(
    served: ir.ServedVersion, protocol: Protocol, orca_port: int, cache: FragmentCache
) -> Resource:
    """Cluster that a model version's requests leave by."""
    shape = _Shape(
        protocol=protocol,
        balance=served.balance,
        orca_port=orca_port if served.balance == "utilization" else 0,
        max_requests=served.max_requests,
        max_pending_requests=served.max_pending_requests,
        retry_budget_percent=served.retry_budget_percent,
    )
    name = names.cluster(served.model, served.version, protocol)

    def build() -> Resource:
        template = cache.get(("cluster shape", shape), lambda: _model_shape(shape))
        body = template.fill(_values(served, protocol, name))
        return resource(resources.CLUSTER, name, body)

    return replace(cache.get(("cluster", name, shape), build), sources=(served.source,))


def shadow_cluster(
    served: ir.ServedVersion, protocol: Protocol, max_requests: int, cache: FragmentCache
) -> Resource:
    """Cluster that copies leave by: same endpoints, and a breaker that protects them."""
    name = names.shadow_cluster(served.model, served.version, protocol)

    def build() -> Resource:
        template = cache.get(
            ("shadow shape", protocol, max_requests), lambda: _shadow_shape(protocol, max_requests)
        )
        body = template.fill(_values(served, protocol, name))
        return resource(resources.CLUSTER, name, body)

    return replace(cache.get(("shadow", name, max_requests), build), sources=(served.source,))


def node_cluster(protocol: Protocol, cache: FragmentCache) -> Resource:
    """Cluster of every node, for requests that name no model."""
    name = names.node_cluster(protocol)

    def build() -> Resource:
        cluster = _base("round-robin")
        cluster.name = name
        cluster.eds_cluster_config = ClusterEdsClusterConfig(eds_config=ads(), service_name=name)
        cluster.health_checks = [
            health_check(protocol, "/v2/health/ready" if protocol == "http" else "")
        ]
        cluster.circuit_breakers = _breakers(NODES_REQUESTS, NODES_REQUESTS, 20)
        options = _protocol_options(protocol)
        options.http_filters = plain(protocol)
        cluster.typed_extension_protocol_options = {_OPTIONS: pack(options)}
        return resource(resources.CLUSTER, name, bytes(cluster))

    return cache.get(("nodes", protocol), build)


def _values(served: ir.ServedVersion, protocol: Protocol, name: str) -> dict[str, str]:
    model, version = served.model, served.version
    return {
        "name": name,
        "service": names.cluster(model, version, protocol),
        "model": model,
        "version": str(version),
        "health": _health_subject(model, version, protocol),
        "metric": f"named_metrics.{names.utilization_metric(model, version)}",
    }


def _health_subject(model: str, version: int, protocol: Protocol) -> str:
    if protocol == "http":
        return f"/v2/models/{model}/versions/{version}/ready"
    return names.health_service(model, version)


def _model_shape(shape: _Shape) -> Template:
    cluster = _base(shape.balance, shape.orca_port)
    cluster.health_checks = [health_check(shape.protocol, slot("health"))]
    cluster.circuit_breakers = _breakers(
        shape.max_requests, shape.max_pending_requests, shape.retry_budget_percent
    )
    return _stamped(cluster, shape.protocol)


def _shadow_shape(protocol: Protocol, max_requests: int) -> Template:
    # Copies need no load reports and no health checks of their own: EDS health and outlier
    # detection keep them off dead nodes, and a failed copy changes nothing for callers.
    cluster = _base("least-request")
    cluster.circuit_breakers = _breakers(max_requests, max_requests, 0)
    return _stamped(cluster, protocol)


def _stamped(cluster: Cluster, protocol: Protocol) -> Template:
    cluster.name = slot("name")
    cluster.eds_cluster_config = ClusterEdsClusterConfig(
        eds_config=ads(), service_name=slot("service")
    )
    options = _protocol_options(protocol)
    options.http_filters = stamp(protocol, model=slot("model"), version=slot("version"))
    cluster.typed_extension_protocol_options = {_OPTIONS: pack(options)}
    return Template.compile(bytes(cluster))


def _base(balance: ir.Balance, orca_port: int = 0) -> Cluster:
    return Cluster(
        type=ClusterDiscoveryType.EDS,
        connect_timeout=seconds(CONNECT_TIMEOUT_S),
        per_connection_buffer_limit_bytes=BUFFER_BYTES,
        common_lb_config=ClusterCommonLbConfig(
            # A panicking cluster would send traffic to nodes that are known to be down.
            healthy_panic_threshold=Percent(value=0),
            update_merge_window=seconds(MERGE_WINDOW_S),
        ),
        outlier_detection=outlier_detection(),
        # A node that left must not linger because its health check still passes.
        ignore_health_on_host_removal=True,
        load_balancing_policy=policy(balance, metric=slot("metric"), orca_port=orca_port),
    )


def _breakers(max_requests: int, max_pending: int, budget_percent: int) -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                max_connections=max_requests,
                max_requests=max_requests,
                max_pending_requests=max_pending,
                track_remaining=True,
                retry_budget=CircuitBreakersThresholdsRetryBudget(
                    budget_percent=Percent(value=float(budget_percent)),
                    min_retry_concurrency=RETRY_CONCURRENCY_MIN,
                    budget_interval=seconds(RETRY_BUDGET_S),
                ),
            )
        ]
    )


def _protocol_options(protocol: Protocol) -> HttpProtocolOptions:
    explicit = HttpProtocolOptionsExplicitHttpConfig()
    common = CommonHttpProtocolOptions(idle_timeout=seconds(HTTP_IDLE_S))
    if protocol == "http":
        explicit.http_protocol_options = Http1ProtocolOptions()
    else:
        explicit.http2_protocol_options = Http2ProtocolOptions(
            initial_stream_window_size=STREAM_WINDOW_BYTES,
            initial_connection_window_size=CONNECTION_WINDOW_BYTES,
            # Notices a node that vanished without a reset while a stream waits on it.
            connection_keepalive=KeepaliveSettings(interval=seconds(10), timeout=seconds(2)),
        )
        common.idle_timeout = seconds(limits.STREAM_DURATION_S)
    return HttpProtocolOptions(
        common_http_protocol_options=common,
        explicit_http_config=explicit,
        outlier_detection=failure_matcher(protocol),
    )
