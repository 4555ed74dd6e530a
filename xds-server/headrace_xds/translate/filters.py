"""Filters whose configuration varies, delivered by ECDS so that listeners never change.

A listener that changes drains its connections and cuts streams; an extension that changes does not.
"""

import math
from collections.abc import Mapping, Sequence
from importlib import resources as package_resources
from typing import Final

import msgspec
from envoy_data_plane.envoy.config.core.v3 import DataSource, TypedExtensionConfig
from envoy_data_plane.envoy.extensions.filters.http.lua.v3 import Lua

from headrace import headers, ir, limits, names, routing
from headrace.refusals import Refusal, Refused, body
from headrace_xds.translate import resources, runtime
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.packing import pack, typed_struct
from headrace_xds.translate.resources import Resource, resource

AUTHENTICATE: Final = "headrace.authenticate"
BODY_SIZE: Final = "headrace.body_size"
MODEL: Final = "headrace.model"
RATE_LIMIT: Final = "headrace.rate_limit"
LUA_URL: Final = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
RATE_LIMIT_TYPE: Final = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
METADATA: Final = "headrace"
"""Namespace of what routes carry for filters."""
LIMIT_KEY: Final = "limit"
"""Route metadata of a limited route: the name of its bucket."""
FILL_INTERVAL_MIN_S: Final = 0.05
"""Shortest period of a token bucket that Envoy takes."""
UNLIMITED_TOKENS: Final = 2**32 - 1
_ROUTE_NAME: Final = {
    "descriptor_key": LIMIT_KEY,
    "metadata_key": {"key": METADATA, "path": [{"key": LIMIT_KEY}]},
    "source": "ROUTE_ENTRY",
}


def authenticate(tenants: Sequence[ir.Tenant], cache: FragmentCache) -> Resource:
    """Filter that turns a key into a tenant; holds hashes of keys, never keys."""
    known = tuple(
        sorted((key, tenant.name, tenant.tier) for tenant in tenants for key in tenant.key_hashes)
    )

    def build() -> Resource:
        lines = "".join(f"{key} {tenant} {tier}\n" for key, tenant, tier in known)
        constants = {
            "IDENTITIES": lines,
            "OPEN_CALLS": "".join(f"{path}\n" for path in routing.OPEN_CALLS),
            "KEY_HEADER": headers.API_KEY,
            "KEY_LENGTH": limits.API_KEY_LENGTH,
            "TENANT_HEADER": headers.TENANT,
            "TIER_HEADER": headers.TIER,
            "INVALID_API_KEY": _unauthenticated(),
            "NO_CALL": _refusal(Refusal.METHOD_NOT_ALLOWED, "a gRPC call is a POST"),
            "NO_UPGRADE": _refusal(Refusal.NOT_FOUND, "no connection is upgraded here"),
            "TWO_HOSTS": _refusal(Refusal.INVALID_VALUE, "the request names two hosts"),
        }
        return _lua(AUTHENTICATE, constants, ("refuse", "sha256", "authenticate"))

    return cache.get((AUTHENTICATE, known), build)


def model(cache: FragmentCache) -> Resource:
    """Filter that finds the model and version a request asks for."""

    def build() -> Resource:
        constants = {
            "FIELDS": limits.GRPC_FIELDS,
            "NAME_LENGTH": limits.MODEL_NAME_LENGTH,
            "TENANT_HEADER": headers.TENANT,
            "MODEL_HEADER": headers.MODEL,
            "PIN_HEADER": headers.PIN,
            "CLUSTER_HEADER": headers.CLUSTER,
            "SCOPE_HEADER": headers.SCOPE,
            "DEADLINE_HEADER": headers.DEADLINE,
            "CLUSTER_FORMAT": names.CLUSTER_FORMAT,
            "SERVICE": routing.SERVICE,
            "STREAM_METHOD": routing.STREAM_METHOD,
            "MODEL_METHODS": dict.fromkeys(routing.MODEL_METHODS, 1),
            "MODEL_HINT": headers.MODEL_HINT,
            "VERSION_HINT": headers.VERSION_HINT,
            "INVALID_API_KEY": _unauthenticated(),
            "INVALID_MESSAGE": _refusal(
                Refusal.INVALID_VALUE, "the request is not one well-formed message"
            ),
            "ENCODING_NOT_ACCEPTED": _refusal(
                Refusal.ENCODING_NOT_ACCEPTED, "the request is compressed"
            ),
        }
        return _lua(MODEL, constants, ("refuse", "model"))

    return cache.get((MODEL,), build)


def rate_limit(routes: Sequence[ir.Route], cache: FragmentCache) -> Resource:
    """Token buckets of every limited route, one for all the protocols that the route takes.

    They sit in the filter and not on the routes: a bucket on a route would be full again after
    every change of any route.
    """
    limited = tuple((route.name, route.rate_limit) for route in routes if route.rate_limit)

    def build() -> Resource:
        config = typed_struct(
            RATE_LIMIT_TYPE,
            {
                "stat_prefix": "rate_limit",
                "enable_retry_after_header": True,
                "rate_limited_as_resource_exhausted": True,
                "filter_enabled": {"default_value": {"numerator": 100}},
                "filter_enforced": {
                    "default_value": {"numerator": 100},
                    "runtime_key": runtime.RATE_LIMIT_PERCENT,
                },
                "token_bucket": {
                    "max_tokens": UNLIMITED_TOKENS,
                    "tokens_per_fill": UNLIMITED_TOKENS,
                    "fill_interval": "0.050s",
                },
                "always_consume_default_token_bucket": False,
                "rate_limits": [{"actions": [{"metadata": _ROUTE_NAME}]}],
                "descriptors": [_descriptor(name, limit) for name, limit in limited],
            },
        )
        extension = TypedExtensionConfig(name=RATE_LIMIT, typed_config=config)
        return resource(resources.EXTENSION, RATE_LIMIT, bytes(extension))

    return cache.get((RATE_LIMIT, limited), build)


def _descriptor(name: str, limit: ir.RateLimit) -> dict[str, object]:
    # The same rate in larger steps, where the period is shorter than Envoy takes.
    steps = max(1, math.ceil(FILL_INTERVAL_MIN_S / limit.per_s))
    return {
        "entries": [{"key": LIMIT_KEY, "value": name}],
        "token_bucket": {
            "max_tokens": limit.burst,
            "tokens_per_fill": limit.requests * steps,
            "fill_interval": f"{limit.per_s * steps:.6f}s",
        },
    }


def _unauthenticated() -> dict[str, str]:
    return _refusal(Refusal.INVALID_API_KEY, "the request carries no known API key")


def _refusal(refusal: Refusal, message: str) -> dict[str, str]:
    return {
        "http": str(refusal.http),
        "grpc": str(refusal.grpc),
        "message": message,
        "body": body(Refused(refusal, message)).decode(),
    }


def _lua(name: str, constants: Mapping[str, object], modules: Sequence[str]) -> Resource:
    folder = package_resources.files("headrace_xds.translate") / "lua"
    parts = [f"local {key} = {_literal(value)}\n" for key, value in constants.items()]
    parts += [(folder / f"{module}.lua").read_text() for module in modules]
    code = Lua(default_source_code=DataSource(inline_string="".join(parts)), stat_prefix=name)
    extension = TypedExtensionConfig(name=name, typed_config=pack(code))
    return resource(resources.EXTENSION, name, bytes(extension))


def _literal(value: object) -> str:
    """Lua literal of a text, a number, or a table of texts."""
    match value:
        case int():
            return str(value)
        case str():
            # Long brackets take any text that cannot close them; Lua drops the first newline.
            if "]==]" in value:
                raise ValueError(f"text cannot be written into a Lua filter: {value!r}")
            return f"[==[\n{value}]==]"
        case dict():
            inner = ", ".join(f"{key} = {_literal(item)}" for key, item in value.items())
            return f"{{ {inner} }}"
        case _:
            raise TypeError(f"no Lua literal for {msgspec.json.encode(value)!r}")
