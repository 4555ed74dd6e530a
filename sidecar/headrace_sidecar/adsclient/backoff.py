"""When to connect again: exponential, jittered, forgotten after a stream that lasted."""

from random import Random

from headrace import limits


class Backoff:
    """Counts streams that died young; a pure function of what it is told."""

    def __init__(self) -> None:
        self._failures = 0

    def next_delay_s(self, *, lived_s: float, rng: Random) -> float:
        """Seconds to wait after a stream that lived ``lived_s``, between half and all of a step."""
        if lived_s >= limits.RECONNECT_STEADY_S:
            self._failures = 0
        step_s = min(limits.RECONNECT_MAX_S, limits.RECONNECT_MIN_S * 2.0**self._failures)
        # Capped so that 2**failures stays small after days without a server.
        self._failures = min(self._failures + 1, 16)
        return step_s * rng.uniform(0.5, 1.0)
