"""The listener of a gateway. It holds nothing that varies, since changing it cuts streams."""

from typing import Final

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    CidrRange,
    ExtensionConfigSource,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    HttpProtocolOptions,
    HttpProtocolOptionsHeadersWithUnderscoresAction,
    KeepaliveSettings,
    SocketAddress,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerInternalAddressConfig,
    HttpConnectionManagerPathWithEscapedSlashesAction,
    HttpConnectionManagerServerHeaderTransformation,
    HttpFilter,
    ScopedRds,
    ScopedRoutes,
    ScopedRoutesScopeKeyBuilder,
    ScopedRoutesScopeKeyBuilderFragmentBuilder,
    ScopedRoutesScopeKeyBuilderFragmentBuilderHeaderValueExtractor,
)
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    HeaderMutation as EarlyHeaderMutation,
)

from headrace import headers, ir, limits
from headrace_xds.translate import filters, resources, route_table
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.packing import ads, pack, seconds, set_header, typed_struct
from headrace_xds.translate.replies import local_replies
from headrace_xds.translate.resources import Resource, resource
from headrace_xds.translate.tls import transport_socket

NAME: Final = "gateway"
BUFFER_BYTES: Final = limits.BODY_BYTES + 64 * 2**10
"""A unary gRPC request is held until its model is known, so the buffer takes a whole body."""
IDLE_CONNECTION_S: Final = 3600.0
IDLE_STREAM_S: Final = 300.0
REQUEST_HEADERS_S: Final = 10.0
REQUEST_HEADERS_KB: Final = 60
REQUEST_HEADERS_COUNT: Final = 100
CONCURRENT_STREAMS: Final = 100
STREAM_WINDOW_BYTES: Final = BUFFER_BYTES
"""Envoy buffers no more of an HTTP/2 request than its window, whatever the listener allows."""
CONNECTION_WINDOW_BYTES: Final = 16 * 2**20
BODY_SIZE_TYPE: Final = "envoy.extensions.filters.http.body_size_limit.v3.BodySizeLimit"


def listener(gateway: ir.Gateway, cache: FragmentCache) -> Resource:
    """Listener of a gateway; depends on its socket, and on whether callers speak TLS."""
    tls = gateway.tls
    kind = (tls is not None, tls is not None and tls.client_ca is not None)
    return cache.get(
        ("listener", gateway.address, gateway.port, kind),
        lambda: resource(resources.LISTENER, NAME, bytes(_author(gateway))),
    )


def _author(gateway: ir.Gateway) -> Listener:
    manager = Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=pack(_manager())
    )
    return Listener(
        name=NAME,
        address=Address(
            socket_address=SocketAddress(address=gateway.address, port_value=gateway.port)
        ),
        per_connection_buffer_limit_bytes=BUFFER_BYTES,
        filter_chains=[
            FilterChain(filters=[manager], transport_socket=transport_socket(gateway.tls))
        ],
    )


def _manager() -> HttpConnectionManager:
    manager = HttpConnectionManager(
        stat_prefix=NAME,
        scoped_routes=_scopes(),
        http_filters=_filters(),
        early_header_mutation_extensions=[_strip()],
        local_reply_config=local_replies(),
        generate_request_id=True,
        preserve_external_request_id=False,
        always_set_request_id_in_response=True,
        server_name="headrace",
        server_header_transformation=HttpConnectionManagerServerHeaderTransformation.OVERWRITE,
    )
    _harden(manager)
    return manager


def _scopes() -> ScopedRoutes:
    """Route tables, one for each value of the scope header.

    The filter that finds a request's model sets the header and clears the cached route, upon which
    Envoy selects the table anew.
    """
    value = ScopedRoutesScopeKeyBuilderFragmentBuilderHeaderValueExtractor(
        name=headers.SCOPE, element_separator=",", index=0
    )
    fragment = ScopedRoutesScopeKeyBuilderFragmentBuilder(header_value_extractor=value)
    return ScopedRoutes(
        name=route_table.SCOPES,
        scope_key_builder=ScopedRoutesScopeKeyBuilder(fragments=[fragment]),
        rds_config_source=ads(),
        scoped_rds=ScopedRds(scoped_rds_config_source=ads()),
    )


def _harden(manager: HttpConnectionManager) -> None:
    """Bounds on what a caller may send.

    There is no request timeout: it would end a ModelStreamInfer that waits for its first answer.
    A request's whole life is bounded instead, which streams extend on their routes.
    """
    manager.use_remote_address = True
    # Nobody is internal, or callers on private addresses could set x-envoy-* headers that change
    # retries and timeouts. An empty list would mean the private ranges, so it names no host's one.
    manager.internal_address_config = HttpConnectionManagerInternalAddressConfig(
        cidr_ranges=[CidrRange(address_prefix="255.255.255.255", prefix_len=32)]
    )
    manager.normalize_path = True
    manager.merge_slashes = True
    manager.path_with_escaped_slashes_action = (
        HttpConnectionManagerPathWithEscapedSlashesAction.REJECT_REQUEST
    )
    manager.request_headers_timeout = seconds(REQUEST_HEADERS_S)
    manager.stream_idle_timeout = seconds(IDLE_STREAM_S)
    manager.max_request_headers_kb = REQUEST_HEADERS_KB
    manager.common_http_protocol_options = HttpProtocolOptions(
        idle_timeout=seconds(IDLE_CONNECTION_S),
        max_headers_count=REQUEST_HEADERS_COUNT,
        max_stream_duration=seconds(limits.REQUEST_DEADLINE_S + limits.UPLOAD_S),
        # x_headrace_tenant must not pass for x-headrace-tenant in a server that maps one to other.
        headers_with_underscores_action=(
            HttpProtocolOptionsHeadersWithUnderscoresAction.REJECT_REQUEST
        ),
    )
    manager.http_protocol_options = Http1ProtocolOptions(
        allow_chunked_length=False,
        # A gateway is no proxy for other hosts, so that a path never names a host of its own.
        allow_absolute_url=False,
    )
    manager.http2_protocol_options = Http2ProtocolOptions(
        max_concurrent_streams=CONCURRENT_STREAMS,
        initial_stream_window_size=STREAM_WINDOW_BYTES,
        initial_connection_window_size=CONNECTION_WINDOW_BYTES,
        connection_keepalive=KeepaliveSettings(interval=seconds(30), timeout=seconds(5)),
    )


def _strip() -> TypedExtensionConfig:
    """Removes what only the mesh may set, before routing or any filter reads it."""
    mutations = [HeaderMutation(remove=name) for name in headers.STRIPPED]
    # Without a value a request would have no scope, not even that of requests without a model.
    mutations.append(HeaderMutation(append=set_header(headers.SCOPE, headers.NO_SCOPE)))
    return TypedExtensionConfig(
        name="headrace.strip", typed_config=pack(EarlyHeaderMutation(mutations=mutations))
    )


def _filters() -> list[HttpFilter]:
    return [
        _discovered(filters.AUTHENTICATE, filters.LUA_URL),
        HttpFilter(
            name=filters.BODY_SIZE,
            typed_config=typed_struct(BODY_SIZE_TYPE, {"max_request_bytes": limits.BODY_BYTES}),
        ),
        _discovered(filters.MODEL, filters.LUA_URL),
        _discovered(filters.RATE_LIMIT, f"type.googleapis.com/{filters.RATE_LIMIT_TYPE}"),
        HttpFilter(name="envoy.filters.http.router", typed_config=pack(Router())),
    ]


def _discovered(name: str, type_url: str) -> HttpFilter:
    """Filter that arrives by ECDS. It has no default: without it requests fail, never pass."""
    return HttpFilter(
        name=name,
        config_discovery=ExtensionConfigSource(config_source=ads(), type_urls=[type_url]),
    )
