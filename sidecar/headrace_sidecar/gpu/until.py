"""Waiting for plain values, such as counters, that have no event of their own."""

import asyncio
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 0.05


async def until(holds: Callable[[], bool], *, deadline_s: float, now: Callable[[], float]) -> bool:
    """Whether the condition came to hold before ``now`` reached the deadline."""
    while not holds():
        if now() >= deadline_s:
            return False
        await asyncio.sleep(PERIOD_S)
    return True
