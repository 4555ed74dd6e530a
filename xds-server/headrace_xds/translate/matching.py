"""Which requests a route takes, as Envoy matches them."""

from collections.abc import Sequence
from typing import assert_never

from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    RouteMatch,
    RouteMatchGrpcRouteMatchOptions,
)
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher

from headrace import headers
from headrace.routing import MODEL_PREFIX, SERVICE, STREAM_PATH, Kind, host_pattern


def match(
    kind: Kind, *, hosts: Sequence[str], wanted: Sequence[tuple[str, str]], pinned: bool
) -> RouteMatch:
    """Match of a model's requests; that they are for the model is known by then."""
    matchers = [header_is(name, value) for name, value in wanted]
    if hosts:
        matchers.insert(0, _host_among(hosts))
    if pinned:
        matchers.append(HeaderMatcher(name=headers.PIN, present_match=True))
    match kind:
        case "http":
            return RouteMatch(prefix=MODEL_PREFIX, headers=matchers)
        case "grpc":
            return RouteMatch(
                prefix=SERVICE, grpc=RouteMatchGrpcRouteMatchOptions(), headers=matchers
            )
        case "stream":
            return RouteMatch(
                path=STREAM_PATH, grpc=RouteMatchGrpcRouteMatchOptions(), headers=matchers
            )
        case _:
            assert_never(kind)


def header_is(name: str, value: str) -> HeaderMatcher:
    """Header with exactly this value."""
    return HeaderMatcher(name=name, string_match=StringMatcher(exact=value))


def _host_among(hosts: Sequence[str]) -> HeaderMatcher:
    # Hosts are matched here and not as virtual hosts: a virtual host per name would have to repeat
    # every route that takes any host.
    return HeaderMatcher(
        name=":authority",
        string_match=StringMatcher(safe_regex=RegexMatcher(regex=host_pattern(hosts))),
    )
