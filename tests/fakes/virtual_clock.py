"""An event loop whose clock jumps to the next timer: hours of waiting run in milliseconds.

Real sockets, threads and processes do not belong on it: nothing waits for them.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")

IDLE_TURNS = 1_000
"""Turns of the loop without a timer and without progress after which it is a deadlock."""


class _Jumping(selectors.SelectSelector):
    """Never sleeps: the time it was asked to wait is added to the clock."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance
        self._idle = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if timeout is None and not found:
            self._idle += 1
            if self._idle > IDLE_TURNS:
                raise RuntimeError("nothing is due and nothing runs: the tasks wait for each other")
            return found
        self._idle = 0
        if timeout and not found:
            self._advance(timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; ``time`` starts at 0."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Jumping(self._advance))

    def time(self) -> float:
        return self._now_s

    def _advance(self, seconds: float) -> None:
        self._now_s += seconds


def run(main: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Run a coroutine function on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def now() -> float:
    """Time on the running loop."""
    return asyncio.get_running_loop().time()
