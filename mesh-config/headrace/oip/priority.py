"""Tiers of callers as priority levels of Triton's queues; level 1 runs first."""

from typing import Final

DEFAULT_TIER: Final = "standard"
SHADOW_TIER: Final = "shadow"
"""Of mirrored requests, whoever sent the original."""

LEVELS: Final = {"critical": 1, DEFAULT_TIER: 2, "sheddable": 3, SHADOW_TIER: 3}
"""Priority level of each tier. A level that a queue lacks would count as its default level."""

SHARES: Final = {"critical": 1.0, DEFAULT_TIER: 0.9, "sheddable": 0.75, SHADOW_TIER: 0.5}
"""Part of a bound that a tier may fill, so that what is worth less is refused first."""


def tier_of(header: str | None, *, shadow: bool) -> str:
    """Tier of a request by the header that the gateway set; an unknown one is the default."""
    if shadow:
        return SHADOW_TIER
    return header if header in LEVELS and header != SHADOW_TIER else DEFAULT_TIER
