"""Who calls over gRPC, as far as the front door cares: tier, version hint, time left."""

from typing import Any

from headrace import headers, limits
from headrace.oip import patience, priority


class Caller:
    """What the metadata and the deadline of one call say."""

    __slots__ = ("_context", "_expected_ms", "_left_ms", "model", "stamped", "tier", "version")

    def __init__(self, context: Any) -> None:
        self._context = context
        given = dict(context.invocation_metadata())
        self.tier = priority.tier_of(_text(given.get(headers.TIER)), shadow=headers.SHADOW in given)
        self._expected_ms = _text(given.get(patience.EXPECTED_TIMEOUT))
        self._left_ms = _text(given.get(headers.DEADLINE))
        self.model = _text(given.get(headers.MODEL)) or ""
        """Model that a gateway routed the call for."""
        self.stamped = _text(given.get(headers.VERSION)) or ""
        """Version that a gateway chose this node for."""
        self.version = self.stamped or _text(given.get(headers.VERSION_HINT)) or ""

    def timeout_s(self, longest_s: float = limits.REQUEST_DEADLINE_S) -> float:
        """Time left to the call, within the sidecar's bound."""
        expected_s = patience.timeout_s(self._expected_ms, longest_s)
        expected_s = patience.timeout_s(self._left_ms, expected_s)
        remaining_s: float | None = self._context.time_remaining()
        return expected_s if remaining_s is None else min(expected_s, max(0.001, remaining_s))


def _text(value: str | bytes | None) -> str | None:
    return value if isinstance(value, str) else None
