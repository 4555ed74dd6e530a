"""What one client saw: how long its answers took, over how long a time."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Latencies of a closed loop that ran for ``took_s``."""

    latencies_s: Sequence[float]
    took_s: float

    def percentile_ms(self, percent: float) -> float:
        """Latency that so many percent of the answers stayed under."""
        ordered = sorted(self.latencies_s)
        position = min(len(ordered) - 1, int(len(ordered) * percent / 100))
        return ordered[position] * 1000

    @property
    def rps(self) -> float:
        """Answers per second."""
        return len(self.latencies_s) / self.took_s


def median(values: Sequence[float]) -> float:
    """Median of the repeats of a measurement."""
    return statistics.median(values)
