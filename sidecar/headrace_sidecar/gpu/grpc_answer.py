"""Refusals of the gRPC front door: a status, and what gateways read as response headers.

Both are in initial metadata. Envoy's retry rules would also see them in an answer that is trailers
only, but its outlier detection would not: there it counts the status alone, and a full node would
be ejected as sick. Failures proper are trailers only for that very reason.
"""

import contextlib
from typing import Any, Final

import grpc
import grpc.aio

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
    found = marks(refused)
    if not refused.sick:
        # Refused when a stream is under way, it has its initial metadata behind it.
        with contextlib.suppress(grpc.aio.UsageError):
            await context.send_initial_metadata(found)
    await context.abort(
        _STATUS[refused.refusal.grpc], f"{refused.refusal.code}: {refused.message}", found
    )
