"""``Pulse``: when a ready version has to be asked for a sign of life. Pure.

A completed request is a sign of life, so a saturated version is never asked. One that runs
requests and completes none, and one that nobody uses, is asked the golden question now and then.
How long is too long grows with what one batch was measured to take.
"""

from typing import Final

from headrace import limits

SLOW: Final = 4.0
"""A batch may take so many times what batches took on average."""


class Pulse:
    """Signs of life of one version."""

    def __init__(self, *, now_s: float) -> None:
        self._sign_s = now_s
        self._busy_since_s: float | None = None
        self._completed = 0

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Pulse(sign at {self._sign_s:.3f}, busy since {self._busy_since_s})"

    def observe(self, *, in_flight: int, completed: int, now_s: float) -> None:
        """Take the counters of the version as they are now."""
        if completed != self._completed:
            self._completed = completed
            self.sign(now_s)
        if in_flight == 0:
            self._busy_since_s = None
        elif self._busy_since_s is None:
            self._busy_since_s = now_s

    def sign(self, now_s: float) -> None:
        """The version has just answered, or was just loaded."""
        self._sign_s = max(now_s, self._sign_s)

    def due(self, *, service_s: float, now_s: float) -> bool:
        """Whether it is time to ask."""
        if self._busy_since_s is None:
            return now_s - self._sign_s >= limits.PROBE_PERIOD_S
        return self.stalled(service_s=service_s, now_s=now_s)

    def stalled(self, *, service_s: float, now_s: float) -> bool:
        """Whether requests have been inside for too long without one completing."""
        if self._busy_since_s is None:
            return False
        silent_s = now_s - max(self._sign_s, self._busy_since_s)
        return silent_s >= max(limits.STALL_S, SLOW * service_s)


def patience_s(service_s: float) -> float:
    """How long an answer to the golden question may take."""
    return max(limits.PROBE_S, SLOW * service_s)
