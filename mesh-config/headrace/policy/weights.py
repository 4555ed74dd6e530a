"""EDS weights of ``least-loaded``: spare capacity in a few steps, steady under noise.

A weight is a node's headroom (1 - utilisation) in WEIGHT_LEVELS steps. Headroom, and not its
inverse, because two idle nodes at 1 % and 5 % must weigh the same. A node whose report is stale
takes the median of the others, so that it neither starves nor floods.
"""

from collections.abc import Mapping
from statistics import median_high
from typing import Final

from headrace.limits import WEIGHT_LEVELS

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
    headroom = (1.0 - min(max(utilization, 0.0), 1.0)) * WEIGHT_LEVELS
    if previous is not None and abs(headroom - previous) <= HYSTERESIS_LEVELS:
        return previous
    return min(max(round(headroom), 1), WEIGHT_LEVELS)
