"""Overrides that gateways read at run time, delivered by RTDS: no listener, cluster or route moves.

There always is a layer, empty where nothing is overridden: Envoy waits for it when it starts, and
would keep the last one for ever if it went away.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from envoy_data_plane.envoy.service.runtime.v3 import Runtime
from envoy_data_plane.google.protobuf import Struct, Value

from headrace import ir
from headrace_xds.translate import resources
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import Resource, resource

LAYER: Final = "headrace"
RATE_LIMIT_PERCENT: Final = "headrace.rate_limit.percent"
MIRROR_PERCENT: Final = "headrace.mirror.percent"
LEAST_LOADED_BIAS: Final = "headrace.least_loaded.active_request_bias"
RETRY_PERCENT: Final = "upstream.use_retry"
EJECTION_PERCENT: Final = (
    "outlier_detection.enforcing_consecutive_5xx",
    "outlier_detection.enforcing_consecutive_gateway_failure",
    "outlier_detection.enforcing_consecutive_local_origin_failure",
)
"""Every way in which a node of ours can be ejected."""


def layer(overrides: ir.Runtime, cache: FragmentCache) -> Resource:
    """The layer of every gateway."""

    def build() -> Resource:
        fields = {key: Value(number_value=value) for key, value in sorted(_values(overrides))}
        body = bytes(Runtime(name=LAYER, layer=Struct(fields=fields)))
        made_from = () if overrides.source is None else (overrides.source,)
        return resource(resources.RUNTIME, LAYER, body, *made_from)

    return cache.get((LAYER, overrides), build)


def _values(overrides: ir.Runtime) -> Sequence[tuple[str, float]]:
    given: Mapping[str, float | None] = {
        RATE_LIMIT_PERCENT: overrides.rate_limit_percent,
        MIRROR_PERCENT: overrides.mirror_percent,
        RETRY_PERCENT: overrides.retry_percent,
        LEAST_LOADED_BIAS: overrides.least_loaded_bias,
        **dict.fromkeys(EJECTION_PERCENT, overrides.ejection_percent),
    }
    return [(key, value) for key, value in given.items() if value is not None]
