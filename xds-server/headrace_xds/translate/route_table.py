"""Route tables: one a model, and one for requests that name none.

Envoy selects the table by a header (scoped routes), so an edit of a route re-sends and rebuilds the
table of its model and no other, and a table that a gateway refuses takes no other with it.
"""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Final

from envoy_data_plane.envoy.config.route.v3 import (
    DirectResponseAction,
    FilterConfig,
    HeaderMatcher,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    RouteMatchGrpcRouteMatchOptions,
    ScopedRouteConfiguration,
    ScopedRouteConfigurationKey,
    ScopedRouteConfigurationKeyFragment,
    VirtualHost,
)

from headrace import headers, ir, names
from headrace.names import Protocol
from headrace.routing import (
    NODE_PATHS,
    NODES_RETRY,
    NODES_TIMEOUT_S,
    STREAM_PATH,
    is_harmless,
)
from headrace_xds.translate import resources
from headrace_xds.translate.filters import BODY_SIZE
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.packing import pack, seconds
from headrace_xds.translate.resources import Resource, resource
from headrace_xds.translate.retries import retry_policy
from headrace_xds.translate.routes import route_list
from headrace_xds.translate.wire import Template, field, slot

SCOPES: Final = "models"
"""Name of the set of scopes in the listener."""

# Field numbers of the messages that a table is put together from.
_CONFIGURATION_VIRTUAL_HOSTS: Final = 2


def route_tables(mesh: ir.Mesh, cache: FragmentCache) -> list[Resource]:
    """Routes of every model, and of requests that name none.

    What matches nothing is answered by the listener's local replies: an unknown model or path.
    """
    routes: dict[str, list[ir.Route]] = defaultdict(list)
    for route in mesh.routes:
        routes[route.model].append(route)
    versions: dict[str, list[ir.ServedVersion]] = defaultdict(list)
    for served in mesh.versions:
        versions[served.model].append(served)
    made = [cache.get(("nodes table",), _nodes_table)]
    for model, found in versions.items():
        build = partial(_model_table, model, tuple(routes[model]), tuple(found), cache)
        made.append(cache.memo.get(("table", model), (*routes[model], *found), build))
    return made


def scopes(mesh: ir.Mesh, cache: FragmentCache) -> list[Resource]:
    """Which header value selects which route table."""
    models = tuple(dict.fromkeys(served.model for served in mesh.versions))
    return [
        _scope(headers.NO_SCOPE, names.NODES_TABLE, cache),
        *(_scope(model, names.route_table(model), cache) for model in models),
    ]


def _scope(value: str, table: str, cache: FragmentCache) -> Resource:
    def build() -> Resource:
        template = cache.get(("scope shape",), _scope_shape)
        return resource(resources.SCOPES, table, template.fill({"name": table, "key": value}))

    return cache.get(("scope", value, table), build)


def _scope_shape() -> Template:
    fragment = ScopedRouteConfigurationKeyFragment(string_key=slot("key"))
    scope = ScopedRouteConfiguration(
        name=slot("name"),
        route_configuration_name=slot("name"),
        key=ScopedRouteConfigurationKey(fragments=[fragment]),
    )
    return Template.compile(bytes(scope))


def _model_table(
    model: str,
    routes: tuple[ir.Route, ...],
    versions: tuple[ir.ServedVersion, ...],
    cache: FragmentCache,
) -> Resource:
    idempotent = is_harmless(versions)
    # A table is made of all its routes, written or implied, which a rejection concerns alike.
    sources = tuple(dict.fromkeys(route.source for route in routes)) or (versions[0].source,)

    def build() -> Resource:
        listed = route_list(model, routes, idempotent=idempotent, cache=cache)
        return _table(names.route_table(model), listed)

    return replace(cache.get(("table", model, routes, idempotent), build), sources=sources)


def _nodes_table() -> Resource:
    routes = [_stream_route(), *(_node_route(path, protocol) for path, protocol in NODE_PATHS)]
    return _table(names.NODES_TABLE, bytes(VirtualHost(routes=routes)))


def _table(name: str, routes: bytes) -> Resource:
    """Table with one virtual host: ``routes`` are fields of it."""
    host = VirtualHost(
        name=name,
        domains=["*"],
        request_headers_to_remove=[headers.CLUSTER, headers.SCOPE],
        response_headers_to_remove=["endpoint-load-metrics", "endpoint-load-metrics-bin"],
        include_request_attempt_count=True,
    )
    head = bytes(RouteConfiguration(name=name))
    body = head + field(_CONFIGURATION_VIRTUAL_HOSTS, bytes(host) + routes)
    return resource(resources.ROUTES, name, body)


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
        retry_policy=retry_policy(NODES_RETRY, idempotent=True),
    )
    return Route(name=f"nodes{path}", match=match, route=action)
