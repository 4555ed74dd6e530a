"""Reading the whole of an HTTP answer, within a bound."""

import aiohttp


async def read_whole(content: aiohttp.StreamReader, *, limit_bytes: int) -> bytes | None:
    """Everything until the end; None when there is more than the limit."""
    # ``read(n)`` would return what has arrived so far, not the whole.
    parts: list[bytes] = []
    size = 0
    async for part in content.iter_any():
        size += len(part)
        if size > limit_bytes:
            return None
        parts.append(part)
    return b"".join(parts)
