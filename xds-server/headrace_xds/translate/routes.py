"""Routes of one model: each for every protocol, pinned versions first."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from envoy.config.route.v3 import route_components_pb2
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation
from envoy_data_plane.envoy.config.core.v3 import Metadata, RuntimeFractionalPercent
from envoy_data_plane.envoy.config.route.v3 import (
    Route,
    RouteAction,
    RouteActionClusterNotFoundResponseCode,
    RouteActionHashPolicy,
    RouteActionHashPolicyHeader,
    RouteActionMaxStreamDuration,
    RouteActionRequestMirrorPolicy,
)
from envoy_data_plane.envoy.type.v3 import FractionalPercent
from envoy_data_plane.google.protobuf import Struct, Value

from headrace import headers, ir, limits, names
from headrace.routing import (
    KINDS,
    PINNED_RETRY,
    PINNED_TIMEOUT_S,
    Kind,
    is_mirrored,
    protocol_of,
    reaches_pins_alone,
    sides,
)
from headrace_xds.translate import runtime
from headrace_xds.translate.filters import LIMIT_KEY, METADATA
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.matching import match
from headrace_xds.translate.packing import seconds, set_header
from headrace_xds.translate.retries import retry_policy
from headrace_xds.translate.wire import Template, field, slot

HOST_ROUTES_FIELD: Final = 3
"""Field of a VirtualHost that holds its routes."""
_ROUTE_ACTION: Final = 2
"""Field of a Route that holds its action."""


class _Shape(NamedTuple):
    """What the bytes of one Envoy route depend on, apart from names, weights and the timeout.

    Those are what people edit: they are written beside the template, which parsers merge.
    """

    kind: Kind
    pinned: bool
    hosts: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    splits: bool
    sticky_header: str | None
    mirror_percent: int | None
    retry: ir.Retry
    idempotent: bool
    limited: bool


def route_list(
    model: str, routes: Sequence[ir.Route], *, idempotent: bool, cache: FragmentCache
) -> bytes:
    """Encoded routes of a model's virtual host, in order, each for every protocol.

    A pinned version is reached also where no route takes the request.
    """
    encoded = [_route(route, cache) for route in routes]
    if reaches_pins_alone(routes):
        encoded.append(_pinned_only(model, idempotent=idempotent, cache=cache))
    return b"".join(encoded)


def _route(route: ir.Route, cache: FragmentCache) -> bytes:
    """Routes of one route of the mesh. A pin comes first and keeps its timeouts and limits."""

    def build() -> bytes:
        arms = sides(route)
        out = bytearray()
        for kind in KINDS:
            for pinned in (True, False):
                shape = _Shape(
                    kind=kind,
                    pinned=pinned,
                    hosts=route.hosts,
                    headers=route.headers,
                    splits=not pinned and len(arms) > 1,
                    sticky_header=None if pinned else route.sticky_header,
                    mirror_percent=route.mirror.percent if route.mirror else None,
                    retry=route.retry,
                    idempotent=route.idempotent,
                    limited=route.rate_limit is not None,
                )
                values = _values(route, arms, kind, pinned=pinned)
                filled = _fill(shape, values, cache)
                out += field(HOST_ROUTES_FIELD, filled + _edited(shape, values, route, arms))
        return bytes(out)

    # The bucket itself is in the rate limit filter: its numbers do not change a route.
    key = (
        route.name, route.model, route.hosts, route.headers, route.arms, route.sticky_header,
        route.mirror, route.timeout_s, route.retry, route.idempotent, route.rate_limit is None,
    )  # fmt: skip
    return cache.get(("route", key), build)


def _pinned_only(model: str, *, idempotent: bool, cache: FragmentCache) -> bytes:
    def build() -> bytes:
        out = bytearray()
        for kind in KINDS:
            shape = _Shape(
                kind=kind,
                pinned=True,
                hosts=(),
                headers=(),
                splits=False,
                sticky_header=None,
                mirror_percent=None,
                retry=PINNED_RETRY,
                idempotent=idempotent,
                limited=False,
            )
            filled = _fill(shape, {"name": f"{model}/pinned/{kind}"}, cache)
            out += field(HOST_ROUTES_FIELD, filled + _action(_timeout(kind, PINNED_TIMEOUT_S)))
        return bytes(out)

    return cache.get(("pinned", model, idempotent), build)


def _fill(shape: _Shape, values: dict[str, str], cache: FragmentCache) -> bytes:
    template = cache.get(("route shape", shape), lambda: Template.compile(bytes(_author(shape))))
    return template.fill(values)


def _edited(
    shape: _Shape, values: dict[str, str], route: ir.Route, arms: Sequence[ir.Arm]
) -> bytes:
    """The rest of the action: how long it may take, and the split.

    The hash picks a point of 0..total and arms lie on it in order, so growing the last arm moves
    only the callers that it gains. Without the header the point is random.
    """
    action = _timeout(shape.kind, route.timeout_s)
    if shape.splits:
        split = action.weighted_clusters
        for index, arm in enumerate(arms):
            split.clusters.add(name=values[f"arm{index}"]).weight.value = arm.weight
        if shape.sticky_header is not None:
            split.use_hash_policy.value = True
    return _action(action)


def _timeout(kind: Kind, timeout_s: float) -> route_components_pb2.RouteAction:
    """An action with nothing but a timeout; a stream has none, see ``_bound``."""
    action = route_components_pb2.RouteAction()
    action.timeout.FromTimedelta(timedelta(seconds=0 if kind == "stream" else timeout_s))
    return action


def _action(action: route_components_pb2.RouteAction) -> bytes:
    return field(_ROUTE_ACTION, action.SerializeToString(deterministic=True))


def _values(route: ir.Route, arms: Sequence[ir.Arm], kind: Kind, *, pinned: bool) -> dict[str, str]:
    protocol = protocol_of(kind)
    values = {
        "name": f"{route.name}/{kind}/pinned" if pinned else f"{route.name}/{kind}",
        "limit": route.name,
    }
    for index, arm in enumerate(arms):
        values[f"arm{index}"] = names.cluster(route.model, arm.version, protocol)
    if route.mirror:
        values["mirror"] = names.shadow_cluster(route.model, route.mirror.version, protocol)
    return values


def _author(shape: _Shape) -> Route:
    action = RouteAction(
        retry_policy=retry_policy(shape.retry, idempotent=shape.idempotent),
        request_mirror_policies=_mirror(shape),
    )
    _send(action, shape)
    _bound(action, shape)
    return Route(
        name=slot("name"),
        match=match(shape.kind, hosts=shape.hosts, wanted=shape.headers, pinned=shape.pinned),
        route=action,
        metadata=_metadata(shape),
        # Without it, a body larger than the connection's buffer silently loses its retries.
        request_body_buffer_limit=limits.BODY_BYTES,
    )


def _send(action: RouteAction, shape: _Shape) -> None:
    """Where the request goes: the pinned version's cluster, the only arm, or an arm of a split."""
    if shape.pinned:
        action.cluster_header = headers.CLUSTER
        action.cluster_not_found_response_code = RouteActionClusterNotFoundResponseCode.NOT_FOUND
        return
    if not shape.splits:
        action.cluster = slot("arm0")
        return
    if shape.sticky_header is not None:
        header = RouteActionHashPolicyHeader(header_name=shape.sticky_header)
        action.hash_policy = [RouteActionHashPolicy(header=header)]


def _bound(action: RouteAction, shape: _Shape) -> None:
    """How long the answer may take. Only streams bound their whole life here: a route that does
    so loses its timeout, and the listener bounds the life of all others."""
    if shape.kind == "stream":
        action.max_stream_duration = RouteActionMaxStreamDuration(
            max_stream_duration=seconds(limits.STREAM_DURATION_S)
        )


def _mirror(shape: _Shape) -> list[RouteActionRequestMirrorPolicy]:
    if shape.mirror_percent is None or not is_mirrored(shape.kind, pinned=shape.pinned):
        return []
    return [
        RouteActionRequestMirrorPolicy(
            cluster=slot("mirror"),
            runtime_fraction=RuntimeFractionalPercent(
                default_value=FractionalPercent(numerator=shape.mirror_percent),
                runtime_key=runtime.MIRROR_PERCENT,
            ),
            disable_shadow_host_suffix_append=True,
            request_headers_mutations=[
                HeaderMutation(append=set_header(headers.SHADOW, "1")),
                HeaderMutation(remove=headers.DESTINATION),
            ],
        )
    ]


def _metadata(shape: _Shape) -> Metadata | None:
    """Name of the route's token bucket, for the rate limit filter."""
    if not shape.limited:
        return None
    limit = Struct(fields={LIMIT_KEY: Value(string_value=slot("limit"))})
    return Metadata(filter_metadata={METADATA: limit})
