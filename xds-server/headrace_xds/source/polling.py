"""Following a folder by looking at it: works on every file system, which notification does not.

A change is handed over only once two readings a moment apart agree: a file that is still being
written is not read as an error.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

SETTLE_S: Final = 0.05
"""Two readings so far apart must agree."""
SETTLE_LIMIT_S: Final = 0.5
"""A folder that never rests is taken as it is after so long."""
POLL_S: Final = 0.1
"""How often a folder is looked at."""

R = TypeVar("R")


async def follow(
    read: Callable[[], R],
    *,
    marks: Callable[[], object],
    known: Callable[[], R],
    read_every: int | None = None,
) -> AsyncGenerator[R, None]:
    """Readings that differ from what is known then; runs until cancelled.

    A folder is read when its ``marks`` differ, and after so many looks even if they do not. Both
    callables block, and run in threads.
    """
    seen: object = None
    for look in itertools.count():
        found = await asyncio.to_thread(marks)
        if found != seen or (read_every is not None and look % read_every == 0):
            seen = found
            reading = await _settled(read)
            if reading != known():
                yield reading
        await asyncio.sleep(POLL_S)


async def _settled(read: Callable[[], R]) -> R:
    """Read until two readings SETTLE_S apart agree, or SETTLE_LIMIT_S have passed."""
    before = await asyncio.to_thread(read)
    for _ in range(int(SETTLE_LIMIT_S / SETTLE_S)):
        await asyncio.sleep(SETTLE_S)
        after = await asyncio.to_thread(read)
        if after == before:
            break
        before = after
    return before
