"""How long a request may take: what its gateway waits for, within the node's own bound."""

from typing import Final

from headrace import limits

EXPECTED_TIMEOUT: Final = "x-envoy-expected-rq-timeout-ms"
"""Set by Envoy: after how many milliseconds it gives the request up."""
MARGIN: Final = 0.1
MARGIN_MAX_S: Final = 0.25
"""How much earlier than its gateway a node gives up, so that the gateway hears of it. A request
that a gateway gives up by itself counts as a failure of the node."""


def timeout_s(expected_ms: str | None, longest_s: float = limits.REQUEST_DEADLINE_S) -> float:
    """Time that a request may take; a header that is no number says nothing."""
    if expected_ms is None or not (expected_ms.isascii() and expected_ms.isdigit()):
        return longest_s
    expected_s = max(1, int(expected_ms[:12])) / 1_000
    return min(longest_s, expected_s - min(MARGIN * expected_s, MARGIN_MAX_S))
