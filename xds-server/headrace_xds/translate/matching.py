"""Which requests a route takes, as Envoy matches them."""

import re
from collections.abc import Sequence
from typing import Final, Literal, assert_never

from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    RouteMatch,
    RouteMatchGrpcRouteMatchOptions,
)
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher

from headrace import headers

Kind = Literal["http", "grpc", "stream"]
KINDS: Final[tuple[Kind, ...]] = ("stream", "grpc", "http")
"""Streams first: their path is one of those that gRPC takes."""
SERVICE: Final = "/inference.GRPCInferenceService/"
STREAM_PATH: Final = SERVICE + "ModelStreamInfer"


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
            return RouteMatch(prefix="/v2/models/", headers=matchers)
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
    pattern = "|".join(
        r".+" + re.escape(host[1:]) if host.startswith("*.") else re.escape(host) for host in hosts
    )
    return HeaderMatcher(
        name=":authority",
        string_match=StringMatcher(safe_regex=RegexMatcher(regex=f"(?i:{pattern})(:[0-9]+)?")),
    )
