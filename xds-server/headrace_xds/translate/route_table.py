"""The RouteConfiguration that all gateways share, assembled from encoded parts."""

from collections import defaultdict
from typing import Final

from envoy_data_plane.envoy.config.route.v3 import (
    DirectResponseAction,
    FilterConfig,
    HeaderMatcher,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteList,
    RouteMatch,
    RouteMatchGrpcRouteMatchOptions,
    VirtualHost,
)
from envoy_data_plane.envoy.type.matcher.v3 import HttpRequestHeaderMatchInput
from envoy_data_plane.xds.core.v3 import TypedExtensionConfig
from envoy_data_plane.xds.type.matcher.v3 import Matcher, MatcherMatcherTree, MatcherOnMatch

from headrace import headers, ir, names
from headrace.names import Protocol
from headrace_xds.translate import resources
from headrace_xds.translate.filters import BODY_SIZE
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.matching import SERVICE, STREAM_PATH
from headrace_xds.translate.packing import pack, seconds
from headrace_xds.translate.resources import Resource, resource
from headrace_xds.translate.retries import retry_policy
from headrace_xds.translate.routes import route_list
from headrace_xds.translate.wire import field

NAME: Final = "gateway"
NODES_TIMEOUT_S: Final = 5.0
NODE_PATHS: Final[tuple[tuple[str, Protocol], ...]] = (
    ("/v2", "http"),
    ("/v2/", "http"),
    ("/v2/health/live", "http"),
    ("/v2/health/ready", "http"),
    (SERVICE + "ServerLive", "grpc"),
    (SERVICE + "ServerReady", "grpc"),
    (SERVICE + "ServerMetadata", "grpc"),
    ("/grpc.health.v1.Health/Check", "grpc"),
)
"""Requests that name no model and that any node can answer."""

# Field numbers of the messages that the table is put together from.
_CONFIGURATION_VIRTUAL_HOSTS: Final = 2
_VIRTUAL_HOST_MATCHER: Final = 21
_MATCHER_TREE: Final = 2
_TREE_EXACT_MAP: Final = 2
_MAP_ENTRY: Final = 1
_ENTRY_KEY: Final = 1
_ENTRY_VALUE: Final = 2
_ON_MATCH_ACTION: Final = 2
_EXTENSION_NAME: Final = 1
_EXTENSION_CONFIG: Final = 2
_ANY_URL: Final = 1
_ANY_VALUE: Final = 2
_LIST_URL: Final = b"type.googleapis.com/envoy.config.route.v3.RouteList"


def route_table(mesh: ir.Mesh, cache: FragmentCache) -> Resource:
    """Routes of every model, and of requests that name none.

    What matches nothing is answered by the listener's local replies: an unknown model or path.
    """
    routes: dict[str, list[ir.Route]] = defaultdict(list)
    for route in mesh.routes:
        routes[route.model].append(route)
    idempotent: dict[str, bool] = {}
    for served in mesh.versions:
        idempotent[served.model] = idempotent.get(served.model, True) and served.idempotent

    entries = b"".join(
        _entry(model, tuple(routes[model]), idempotent=harmless, cache=cache)
        for model, harmless in idempotent.items()
    )
    host = cache.get(("table host",), _host)
    if entries:
        tree, otherwise = cache.get(("table matcher",), _matcher)
        tree += field(_TREE_EXACT_MAP, entries)
        host += field(_VIRTUAL_HOST_MATCHER, field(_MATCHER_TREE, tree) + otherwise)
    else:
        host += cache.get(("table of nodes",), lambda: bytes(VirtualHost(routes=_node_routes())))
    table = bytes(RouteConfiguration(name=NAME, ignore_port_in_host_matching=True))
    return resource(resources.ROUTES, NAME, table + field(_CONFIGURATION_VIRTUAL_HOSTS, host))


def _entry(
    model: str, routes: tuple[ir.Route, ...], *, idempotent: bool, cache: FragmentCache
) -> bytes:
    """One entry of the exact map: the model's name and its list of routes."""
    routes_list = route_list(model, routes, idempotent=idempotent, cache=cache)
    config = field(_ANY_URL, _LIST_URL) + field(_ANY_VALUE, routes_list)
    action = field(_EXTENSION_NAME, model.encode()) + field(_EXTENSION_CONFIG, config)
    on_match = field(_ON_MATCH_ACTION, action)
    return field(_MAP_ENTRY, field(_ENTRY_KEY, model.encode()) + field(_ENTRY_VALUE, on_match))


def _host() -> bytes:
    """The virtual host around everything."""
    host = VirtualHost(
        name=NAME,
        domains=["*"],
        request_headers_to_remove=[headers.CLUSTER],
        response_headers_to_remove=["endpoint-load-metrics", "endpoint-load-metrics-bin"],
        include_request_attempt_count=True,
    )
    return bytes(host)


def _matcher() -> tuple[bytes, bytes]:
    """The tree without its map, and what follows when no model is found in it."""
    tree = MatcherMatcherTree(
        input=TypedExtensionConfig(
            name="headrace.model",
            typed_config=pack(HttpRequestHeaderMatchInput(header_name=headers.MODEL)),
        )
    )
    action = TypedExtensionConfig(
        name="headrace.nodes", typed_config=pack(RouteList(routes=_node_routes()))
    )
    return bytes(tree), bytes(Matcher(on_no_match=MatcherOnMatch(action=action)))


def _node_routes() -> list[Route]:
    return [_stream_route(), *(_node_route(path, protocol) for path, protocol in NODE_PATHS)]


def _stream_route() -> Route:
    """What a stream matches until its model is known, which is when its filters are chosen.

    The bound on bodies is for one message; a stream may carry many, which the node bounds singly.
    """
    return Route(
        name="streams",
        match=RouteMatch(path=STREAM_PATH, headers=[_no_model()]),
        direct_response=DirectResponseAction(status=404),
        typed_per_filter_config={
            BODY_SIZE: pack(FilterConfig(disabled=True)),
        },
    )


def _no_model() -> HeaderMatcher:
    return HeaderMatcher(name=headers.MODEL, present_match=True, invert_match=True)


def _node_route(path: str, protocol: Protocol) -> Route:
    match = RouteMatch(path=path)
    match.headers = [_no_model()]
    if protocol == "grpc":
        match.grpc = RouteMatchGrpcRouteMatchOptions()
    action = RouteAction(
        cluster=names.node_cluster(protocol),
        timeout=seconds(NODES_TIMEOUT_S),
        retry_policy=retry_policy(ir.Retry(attempts=2, per_try_timeout_s=None), idempotent=True),
    )
    return Route(name=f"nodes{path}", match=match, route=action)
