"""Responses of the HTTP front door: refusals by the table, answers with who gave them."""

from typing import Any, Final

import msgspec
from aiohttp import web

from headrace import headers, refusals
from headrace.oip.http_request import HEADER_LENGTH
from headrace.refusals import Refused
from headrace_sidecar.gpu.serving import Served, Serving

RETRY_AFTER_S: Final = 1
"""What a caller is told to wait where nothing better is known."""
_RETRIABLE: Final = frozenset({429, 503})
_JSON: Final = "application/json"
_BINARY: Final = "application/octet-stream"


def refusal(refused: Refused) -> web.Response:
    """Response of a refusal, marked for retries and for outlier detection."""
    status = refused.refusal.http
    fields = {"Content-Type": _JSON}
    if not refused.sick:
        fields[headers.REFUSED] = refused.refusal.code
    if refused.elsewhere:
        fields[headers.RETRY] = headers.RETRY_SAFE
    if status in _RETRIABLE:
        wait_s = RETRY_AFTER_S if refused.retry_after_s is None else refused.retry_after_s
        fields["Retry-After"] = str(max(1, round(wait_s)))
    return web.Response(status=status, body=refusals.body(refused), headers=fields)


def plain(value: Any) -> web.Response:
    """JSON of a plain value."""
    return web.Response(body=msgspec.json.encode(value), headers={"Content-Type": _JSON})


def empty() -> web.Response:
    """200 and nothing more."""
    return web.Response()


def inferred(
    serving: Serving, served: Served, body: bytes, header_bytes: int | None
) -> web.Response:
    """An inference's answer; ``header_bytes`` of it are JSON where tensors follow."""
    fields = {
        headers.SERVED_VERSION: str(served.assignment.version),
        headers.SERVED_NODE: serving.node,
    }
    if header_bytes is None:
        fields["Content-Type"] = _JSON
    else:
        fields["Content-Type"] = _BINARY
        fields[HEADER_LENGTH] = str(header_bytes)
    return web.Response(body=body, headers=fields)
