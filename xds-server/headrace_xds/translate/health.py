"""How a gateway tells a node that is sick from one that is full, and how fast."""

from typing import Final, assert_never

from envoy_data_plane.envoy.config.cluster.v3 import OutlierDetection
from envoy_data_plane.envoy.config.common.matcher.v3 import (
    HttpHeadersMatch,
    MatchPredicate,
    MatchPredicateMatchSet,
)
from envoy_data_plane.envoy.config.core.v3 import (
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    HealthCheckHttpHealthCheck,
)
from envoy_data_plane.envoy.config.route.v3 import HeaderMatcher
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import HttpProtocolOptionsOutlierDetection
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher

from headrace import headers
from headrace.names import Protocol
from headrace_xds.translate.packing import seconds

CHECK_INTERVAL_S: Final = 1.0
CHECK_TIMEOUT_S: Final = 0.5
CHECK_MISSES: Final = 2
"""A dead node is gone after at most misses x (interval + jitter) + timeout = 2.7 s."""
CHECK_JITTER_PERCENT: Final = 10
IDLE_CHECK_INTERVAL_S: Final = 5.0
"""Interval for a cluster that no request has used yet."""
SICK_FAILURES: Final = 5
"""Failures in a row after which a node is ejected."""
EJECTION_S: Final = 5.0
EJECTION_MAX_S: Final = 30.0


def health_check(protocol: Protocol, subject: str) -> HealthCheck:
    """Active check; ``subject`` is a path for HTTP and a health service's name for gRPC."""
    check = HealthCheck(
        timeout=seconds(CHECK_TIMEOUT_S),
        interval=seconds(CHECK_INTERVAL_S),
        interval_jitter_percent=CHECK_JITTER_PERCENT,
        unhealthy_threshold=CHECK_MISSES,
        healthy_threshold=1,
        no_traffic_interval=seconds(IDLE_CHECK_INTERVAL_S),
        no_traffic_healthy_interval=seconds(IDLE_CHECK_INTERVAL_S),
        unhealthy_interval=seconds(CHECK_INTERVAL_S),
    )
    match protocol:
        case "http":
            check.http_health_check = HealthCheckHttpHealthCheck(path=subject)
        case "grpc":
            check.grpc_health_check = HealthCheckGrpcHealthCheck(service_name=subject)
        case _:
            assert_never(protocol)
    return check


def outlier_detection() -> OutlierDetection:
    """Ejects a node that fails, by its answers or its connections, and never the last one.

    An ejection outlives a successful health check: a node whose health endpoint works while its
    inference fails would otherwise be back within a second.
    """
    return OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_gateway_failure=SICK_FAILURES,
        enforcing_consecutive_gateway_failure=100,
        consecutive_local_origin_failure=SICK_FAILURES,
        enforcing_consecutive_local_origin_failure=100,
        consecutive_5xx=SICK_FAILURES,
        enforcing_consecutive_5xx=100,
        enforcing_success_rate=0,
        enforcing_local_origin_success_rate=0,
        interval=seconds(1),
        base_ejection_time=seconds(EJECTION_S),
        max_ejection_time=seconds(EJECTION_MAX_S),
        max_ejection_percent=50,
        always_eject_one_host=True,
        successful_active_health_check_uneject_host=False,
    )


def failure_matcher(protocol: Protocol) -> HttpProtocolOptionsOutlierDetection:
    """What counts as a failure: a server error, unless the node says that it refused the request.

    gRPC errors arrive with HTTP status 200, so there the gRPC status is read: UNKNOWN, INTERNAL,
    UNAVAILABLE and DATA_LOSS.
    """
    broken = [_header_like(":status", "5[0-9][0-9]")]
    if protocol == "grpc":
        broken.append(_header_like("grpc-status", "2|13|14|15"))
    refused = MatchPredicate(
        http_response_headers_match=HttpHeadersMatch(
            headers=[HeaderMatcher(name=headers.REFUSED, present_match=True)]
        )
    )
    failed = broken[0] if len(broken) == 1 else _any_of(broken)
    return HttpProtocolOptionsOutlierDetection(
        error_matcher=MatchPredicate(
            and_match=MatchPredicateMatchSet(rules=[failed, MatchPredicate(not_match=refused)])
        )
    )


def _any_of(rules: list[MatchPredicate]) -> MatchPredicate:
    return MatchPredicate(or_match=MatchPredicateMatchSet(rules=rules))


def _header_like(name: str, regex: str) -> MatchPredicate:
    matcher = HeaderMatcher(
        name=name, string_match=StringMatcher(safe_regex=RegexMatcher(regex=regex))
    )
    return MatchPredicate(http_response_headers_match=HttpHeadersMatch(headers=[matcher]))
