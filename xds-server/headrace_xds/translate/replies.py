"""What callers hear from Envoy itself: the mesh's own refusals, as their protocol expects them."""

from typing import Final

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLogFilter,
    AndFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    HeaderFilter,
    ResponseFlagFilter,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    HeaderValueOption,
    RuntimeUInt32,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.config.route.v3 import HeaderMatcher
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from headrace import headers
from headrace.refusals import Refusal, Refused, body
from headrace_xds.translate.packing import set_header

NO_ROUTE_FLAGS: Final = ("NR", "NC")
RETRY_AFTER_S: Final = 1
"""For refusals by a gateway, which has no better estimate."""


def local_replies() -> LocalReplyConfig:
    """Mappers from what Envoy would say; the first that matches is used."""
    unknown_model = [_flags(*NO_ROUTE_FLAGS), _model_named()]
    no_model = "no such model or version, or no route takes this request"
    mappers = [
        *_both(unknown_model, Refusal.MODEL_NOT_FOUND, no_model),
        _grpc_reply([_flags(*NO_ROUTE_FLAGS)], Refusal.NOT_IMPLEMENTED, "no such method"),
        _http_reply([_flags(*NO_ROUTE_FLAGS)], Refusal.NOT_FOUND, "no such path"),
        *_both([_status(429)], Refusal.QUOTA_EXCEEDED, "the route's rate limit is used up"),
        *_both([_flags("UO")], Refusal.OVERLOADED, "too many requests are in flight"),
        *_both([_flags("UH")], Refusal.NOT_READY, "no node is ready for this model version"),
        *_both([_flags("UF", "UC", "UR", "LR")], Refusal.UPSTREAM_RESET, "the node went away"),
        *_both([_flags("UT", "DT", "UMSDR", "SI")], Refusal.TIMEOUT, "the request took too long"),
        _http_reply([_status(408)], Refusal.SLOW_SENDER, "the request came too slowly"),
        *_both([_status(413)], Refusal.REQUEST_TOO_LARGE, "the body is larger than 10 MB"),
        *_both([_status(503)], Refusal.OVERLOADED, "the gateway is short of memory"),
        *_both([_status(400)], Refusal.INVALID_VALUE, "the request is malformed"),
    ]
    return LocalReplyConfig(mappers=mappers)


def _both(
    conditions: list[AccessLogFilter], refusal: Refusal, message: str
) -> list[ResponseMapper]:
    return [
        _grpc_reply(conditions, refusal, message),
        _http_reply(conditions, refusal, message),
    ]


def _grpc_reply(
    conditions: list[AccessLogFilter], refusal: Refusal, message: str
) -> ResponseMapper:
    status = set_header("grpc-status", str(refusal.grpc))
    return ResponseMapper(
        filter=_all([*conditions, _grpc()]),
        body=DataSource(inline_string=message),
        headers_to_add=[status, *_retry_after(refusal)],
    )


def _http_reply(
    conditions: list[AccessLogFilter], refusal: Refusal, message: str
) -> ResponseMapper:
    return ResponseMapper(
        filter=_all(conditions),
        status_code=refusal.http,
        headers_to_add=_retry_after(refusal),
        body_format_override=_json(body(Refused(refusal, message)).decode()),
    )


def _retry_after(refusal: Refusal) -> list[HeaderValueOption]:
    return [set_header("retry-after", str(RETRY_AFTER_S))] if refusal.http == 503 else []


def _json(text: str) -> SubstitutionFormatString:
    return SubstitutionFormatString(
        text_format_source=DataSource(inline_string=text.replace("%", "%%")),
        content_type="application/json",
    )


def _all(conditions: list[AccessLogFilter]) -> AccessLogFilter:
    if len(conditions) == 1:
        return conditions[0]
    return AccessLogFilter(and_filter=AndFilter(filters=conditions))


def _flags(*flags: str) -> AccessLogFilter:
    return AccessLogFilter(response_flag_filter=ResponseFlagFilter(flags=list(flags)))


def _grpc() -> AccessLogFilter:
    kind = HeaderMatcher(name="content-type", string_match=StringMatcher(prefix="application/grpc"))
    return AccessLogFilter(header_filter=HeaderFilter(header=kind))


def _model_named() -> AccessLogFilter:
    named = HeaderMatcher(name=headers.MODEL, present_match=True)
    return AccessLogFilter(header_filter=HeaderFilter(header=named))


def _status(status: int) -> AccessLogFilter:
    value = RuntimeUInt32(default_value=status, runtime_key="headrace.local_reply.status")
    comparison = ComparisonFilter(op=ComparisonFilterOp.EQ, value=value)
    return AccessLogFilter(status_code_filter=StatusCodeFilter(comparison=comparison))
