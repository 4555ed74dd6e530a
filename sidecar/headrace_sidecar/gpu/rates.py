"""``Rate``: events per second of a counter, as a moving average. Pure."""

import math
from typing import Final

WINDOW_S: Final = 2.0
"""Time constant: fast enough to steer by, slow enough not to jump with every batch."""


class Rate:
    """Rate of one counter; starts at 0."""

    def __init__(self, *, total: int, now_s: float) -> None:
        self.per_s = 0.0
        self._total = total
        self._at_s = now_s

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Rate({self.per_s:.2f}/s)"

    def observe(self, *, total: int, now_s: float) -> None:
        """Take the counter as it is now."""
        elapsed_s = now_s - self._at_s
        if elapsed_s <= 0:
            return
        keep = math.exp(-elapsed_s / WINDOW_S)
        self.per_s = keep * self.per_s + (1.0 - keep) * max(total - self._total, 0) / elapsed_s
        self._total, self._at_s = total, now_s
