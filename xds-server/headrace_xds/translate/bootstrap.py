"""What a gateway's Envoy is started with. Everything else reaches it over ADS."""

from typing import Any, Final

from headrace import ir, limits, names
from headrace_xds.translate import runtime

# How much memory large bodies may take. The largest request is 10 MiB + 64 KiB. One that waits for
# its answer holds a copy for retries (measured: 10.7 MiB), while it arrives at most 13.2 MiB, and
# when the node takes nothing of it also the bytes not yet sent, 21 MiB. 2 GiB therefore carry 150
# such requests as a rule and 80 at worst, beside the rest of Envoy (7 MiB, or 270 MiB with
# the clusters and routes of 1,000 models). Past 80 % of the heap Envoy gives back free memory, past
# 85 % it shortens idle timeouts, past 90 % it resets the HTTP/2 requests that hold most (1 MiB or
# more, the largest first), past 95 % it refuses new requests. It goes on accepting connections, for
# a caller that hangs learns less than one that gets a 503. A reset costs one caller an answer; an
# Envoy killed for memory costs all callers all of theirs.
HEAP_SHRINK: Final = 0.80
HEAP_IDLE: Final = 0.85
HEAP_RESET: Final = 0.90
HEAP_REFUSE_REQUESTS: Final = 0.95
TRACKED_BUFFER_POWER: Final = 20
"""Requests that hold 2^20 bytes or more are candidates for a reset."""
REFRESH_S: Final = 0.25
FETCH_TIMEOUT_S: Final = 15
RUNTIME_TIMEOUT_S: Final = 1
"""Envoy asks for nothing else before its overrides arrive; without them it starts as is."""
STATS_FLUSH_S: Final = 10
DRAIN_FLAGS: Final = ("--drain-time-s", "900", "--drain-strategy", "gradual")
"""Streams outlive a drain shorter than limits.STREAM_DURATION_S."""
_FACTORY: Final = "type.googleapis.com/envoy.extensions"
_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def bootstrap(
    gateway: ir.Gateway, *, zone: str, xds: tuple[str, int], admin: tuple[str, int]
) -> dict[str, Any]:
    """Bootstrap of a gateway, as JSON; ``xds`` and ``admin`` are host and port."""
    return {
        "node": {
            "id": names.gateway_node_id(gateway.name),
            "cluster": "gateway",
            "locality": {"region": gateway.region, "zone": zone},
            "metadata": {"role": "gateway", "region": gateway.region},
        },
        "admin": {"address": _address(admin)},
        "dynamic_resources": _dynamic(),
        "static_resources": {"clusters": [_xds_cluster(xds)]},
        "layered_runtime": {
            "layers": [
                {"name": "static", "static_layer": {}},
                {"name": runtime.LAYER, "rtds_layer": _overrides()},
                # A person at the admin port has the last word, until Envoy ends.
                {"name": "admin", "admin_layer": {}},
            ]
        },
        "overload_manager": _overload(),
        "stats_config": {"stats_matcher": _kept_stats()},
        "stats_flush_interval": f"{STATS_FLUSH_S}s",
    }


def _dynamic() -> dict[str, Any]:
    source = {
        "ads": {},
        "resource_api_version": "V3",
        "initial_fetch_timeout": f"{FETCH_TIMEOUT_S}s",
    }
    back_off = {"base_interval": "0.2s", "max_interval": "5s"}
    return {
        "ads_config": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "set_node_on_first_message_only": True,
            "rate_limit_settings": {"max_tokens": 100, "fill_rate": 10},
            "grpc_services": [
                {
                    "envoy_grpc": {
                        "cluster_name": "xds",
                        "retry_policy": {"retry_back_off": back_off},
                    }
                }
            ],
            # A server that forgot its configuration must not take every cluster away.
            "config_validators": [
                {
                    "name": "headrace.minimum_clusters",
                    "typed_config": {
                        "@type": f"{_FACTORY}.config.validators.minimum_clusters.v3"
                        ".MinimumClustersValidator",
                        "min_clusters_num": 1,
                    },
                }
            ],
        },
        "cds_config": source,
        "lds_config": source,
    }


def _overrides() -> dict[str, Any]:
    source = {
        "ads": {},
        "resource_api_version": "V3",
        "initial_fetch_timeout": f"{RUNTIME_TIMEOUT_S}s",
    }
    return {"name": runtime.LAYER, "rtds_config": source}


def _xds_cluster(xds: tuple[str, int]) -> dict[str, Any]:
    keepalive = {"interval": "10s", "timeout": "5s"}
    return {
        "name": "xds",
        "type": "STRICT_DNS",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "xds",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(xds)}}]}],
        },
        "typed_extension_protocol_options": {
            _OPTIONS: {
                "@type": f"type.googleapis.com/{_OPTIONS}",
                "explicit_http_config": {
                    "http2_protocol_options": {"connection_keepalive": keepalive}
                },
            }
        },
        "upstream_connection_options": {
            "tcp_keepalive": {"keepalive_time": 10, "keepalive_interval": 5, "keepalive_probes": 3}
        },
    }


def _overload() -> dict[str, Any]:
    return {
        "refresh_interval": f"{REFRESH_S}s",
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": TRACKED_BUFFER_POWER},
        "resource_monitors": [
            _monitor(
                "fixed_heap",
                f"{_FACTORY}.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                {"max_heap_size_bytes": limits.HEAP_BYTES},
            ),
            _monitor(
                "global_downstream_max_connections",
                f"{_FACTORY}.resource_monitors.downstream_connections.v3"
                ".DownstreamConnectionsConfig",
                {"max_active_downstream_connections": limits.DOWNSTREAM_CONNECTIONS},
            ),
        ],
        "actions": [
            _action("shrink_heap", {"threshold": {"value": HEAP_SHRINK}}),
            _reduce_timeouts(),
            _action(
                "reset_high_memory_stream",
                {"scaled": {"scaling_threshold": HEAP_RESET, "saturation_threshold": 1.0}},
            ),
            _action("stop_accepting_requests", {"threshold": {"value": HEAP_REFUSE_REQUESTS}}),
        ],
    }


def _reduce_timeouts() -> dict[str, Any]:
    trigger = {"scaled": {"scaling_threshold": HEAP_IDLE, "saturation_threshold": 0.95}}
    return {
        **_action("reduce_timeouts", trigger),
        "typed_config": {
            "@type": "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig",
            "timer_scale_factors": [
                {"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": "2s"},
            ],
        },
    }


def _monitor(name: str, type_url: str, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": f"envoy.resource_monitors.{name}",
        "typed_config": {"@type": type_url, **config},
    }


def _action(name: str, trigger: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": f"envoy.overload_actions.{name}",
        "triggers": [{"name": "envoy.resource_monitors.fixed_heap", **trigger}],
    }


_LISTENER_STATS: Final = r"[^.]+|lua\..*|scoped_rds\..*|rds\..*\.update_(success|rejected)"
"""There is a route table a model, so of each only the number of updates is kept."""


def _kept_stats() -> dict[str, Any]:
    """Statistics that are kept. A cluster has some 150 and a mesh thousands of clusters."""
    cluster = (
        "upstream_rq_(total|active|pending_active|pending_overflow|retry|retry_success|retry_overflow"
        "|retry_limit_exceeded|timeout|per_try_timeout|[1-5]xx|time|cancelled|completed)"
        "|upstream_cx_(active|total|connect_fail)|membership_(total|healthy)"
        "|outlier_detection\\.ejections_(active|enforced_total)"
        "|health_check\\.(failure|healthy)|lb_orca_oob\\..*|circuit_breakers\\..*"
    )
    return {
        "inclusion_list": {
            "patterns": [
                {"safe_regex": {"regex": f"cluster\\.[^.]+\\.({cluster})"}},
                {"safe_regex": {"regex": f"http\\.[^.]+\\.({_LISTENER_STATS})"}},
                *(
                    {"prefix": prefix}
                    for prefix in (
                        "listener.",
                        "listener_manager.",
                        "cluster_manager.",
                        "server.",
                        "overload.",
                        "control_plane.",
                        "extension_config_discovery.",
                        "runtime.",
                    )
                ),
            ]
        }
    }


def _address(socket: tuple[str, int]) -> dict[str, Any]:
    return {"socket_address": {"address": socket[0], "port_value": socket[1]}}
