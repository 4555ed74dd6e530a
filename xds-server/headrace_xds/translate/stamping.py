"""What a cluster does to the headers of every attempt that leaves by it."""

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import (
    HeaderMutation,
    HeaderMutationRemoveOnMatch,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    HeaderMutation as HeaderMutationFilter,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    Mutations,
)
from envoy_data_plane.envoy.extensions.filters.http.upstream_codec.v3 import UpstreamCodec
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from headrace import headers
from headrace.names import Protocol
from headrace_xds.translate.packing import pack, set_header


def stamp(protocol: Protocol, *, model: str, version: str) -> list[HttpFilter]:
    """Model and version on every attempt: an attempt on another arm gets that arm's."""
    stamped = [
        HeaderMutation(append=set_header(headers.MODEL, model)),
        HeaderMutation(append=set_header(headers.VERSION, version)),
    ]
    return _chain([*stamped, *_plain(protocol)])


def plain(protocol: Protocol) -> list[HttpFilter]:
    """Nothing on attempts that no model is named in, but for what every call loses."""
    return _chain(_plain(protocol)) if protocol == "grpc" else []


def _plain(protocol: Protocol) -> list[HeaderMutation]:
    """Remove what a node's gRPC library reads from headers by itself.

    It answers values that it cannot read with an error of its own, which counts as an illness of
    the node: five such calls, and a caller would have a healthy node ejected.
    """
    if protocol == "http":
        return []
    return [
        HeaderMutation(append=set_header("te", "trailers")),
        _remove(StringMatcher(prefix="grpc-")),
        _remove(StringMatcher(suffix="-bin")),
    ]


def _remove(name: StringMatcher) -> HeaderMutation:
    return HeaderMutation(remove_on_match=HeaderMutationRemoveOnMatch(key_matcher=name))


def _chain(mutations: list[HeaderMutation]) -> list[HttpFilter]:
    config = HeaderMutationFilter(mutations=Mutations(request_mutations=mutations))
    return [
        HttpFilter(name="headrace.stamp", typed_config=pack(config)),
        HttpFilter(name="envoy.filters.http.upstream_codec", typed_config=pack(UpstreamCodec())),
    ]
