"""How long a request may take: what its gateway waits for, within the node's own bound."""

from typing import Final

from headrace import limits

EXPECTED_TIMEOUT: Final = "x-envoy-expected-rq-timeout-ms"
"""Set by Envoy: after how many milliseconds it gives the request up."""


def timeout_s(expected_ms: str | None, longest_s: float = limits.REQUEST_DEADLINE_S) -> float:
    """Time that a request may take; a header that is no number says nothing."""
    if expected_ms is None or not (expected_ms.isascii() and expected_ms.isdigit()):
        return longest_s
    return min(longest_s, max(1, int(expected_ms[:12])) / 1_000)
