"""EDS weights of ``least-loaded``: spare capacity in a few steps, steady under noise.

A weight is a node's headroom (1 - utilisation) in WEIGHT_LEVELS steps. Headroom, and not its
inverse, because two idle nodes at 1 % and 5 % must weigh the same. A node whose report is stale
takes the median of the others, so that it neither starves nor floods.
"""

from collections.abc import Mapping
from statistics import median_high
from typing import Final

from headrace.limits import WEIGHT_LEVELS

IDLE: Final = 0.1
"""Utilisation up to here counts as none: health questions alone make a quiet node look that busy,
and following them would push new weights all day for no traffic at all."""
HYSTERESIS_LEVELS: Final = 0.75
"""How far headroom must leave the step it is on before the weight follows."""


def weigh(utilization: Mapping[str, float | None], previous: Mapping[str, int]) -> dict[str, int]:
    """Weight of every node, 1 to WEIGHT_LEVELS; None is a node without a fresh report."""
    fresh = {
        node: _step(value, previous.get(node))
        for node, value in utilization.items()
        if value is not None
    }
    unknown = median_high(fresh.values()) if fresh else WEIGHT_LEVELS
    return {node: fresh.get(node, unknown) for node in utilization}


def _step(utilization: float, previous: int | None) -> int:
    busy = min(max(utilization - IDLE, 0.0) / (1.0 - IDLE), 1.0)
    headroom = (1.0 - busy) * WEIGHT_LEVELS
    if previous is not None and abs(headroom - previous) <= HYSTERESIS_LEVELS:
        return previous
    return min(max(round(headroom), 1), WEIGHT_LEVELS)
