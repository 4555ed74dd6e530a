"""Refusals of the gRPC front door: a status, and what gateways read as response headers.

A call that is refused before its first message ends with trailers only, which travel as response
headers: Envoy's retry and outlier rules see the marks there. (Checked on the wire with grpc.aio.)
"""

from typing import Any, Final

import grpc

from headrace import headers
from headrace.refusals import Refused

_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}
PUSHBACK: Final = "grpc-retry-pushback-ms"
_PUSHBACK_MS: Final = 1_000
_UNAVAILABLE: Final = grpc.StatusCode.UNAVAILABLE.value[0]


def marks(refused: Refused) -> tuple[tuple[str, str], ...]:
    """Metadata of a refusal."""
    found: list[tuple[str, str]] = []
    if not refused.sick:
        found.append((headers.REFUSED, refused.refusal.code))
    if refused.elsewhere:
        found.append((headers.RETRY, headers.RETRY_SAFE))
    if refused.refusal.grpc == _UNAVAILABLE:
        wait_s = refused.retry_after_s
        wait_ms = _PUSHBACK_MS if wait_s is None else max(1, round(wait_s * 1_000))
        found.append((PUSHBACK, str(wait_ms)))
    return tuple(found)


async def abort(context: Any, refused: Refused) -> None:
    """End a call with a refusal; does not return."""
    await context.abort(
        _STATUS[refused.refusal.grpc], f"{refused.refusal.code}: {refused.message}", marks(refused)
    )
