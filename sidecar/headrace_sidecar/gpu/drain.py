"""Leaving without losing anything: what happens between SIGTERM and the exit.

Gateways learn of it three ways (the control server, health checks, load reports), and none is
instant. So the node first says that it leaves and goes on serving, then refuses what still comes
in, which is safe to retry elsewhere, and closes when what was inside is done.
"""

import asyncio
import enum
import logging
from collections.abc import Callable
from typing import Protocol

from headrace_sidecar.gpu.until import until

log = logging.getLogger(__name__)


class Phase(enum.Enum):
    """Where the node is on its way out."""

    SERVING = "serving"
    LEAVING = "leaving"
    """Health says no; requests are still let in."""
    REFUSING = "refusing"
    """Nothing more comes in; what is inside goes on."""
    CLOSED = "closed"


class Door(Protocol):
    """What the front door shows of itself."""

    leaving: bool
    draining: bool

    @property
    def in_flight(self) -> int:
        """Requests inside."""


class Drain:
    """Takes a node out; ``hurry`` ends the waiting that only helps others to notice."""

    def __init__(
        self,
        door: Door,
        *,
        leave: Callable[[], None],
        grace_s: float,
        deadline_s: float,
        now: Callable[[], float],
    ) -> None:
        self.phase = Phase.SERVING
        self._door = door
        self._leave = leave
        self._grace_s = grace_s
        self._deadline_s = deadline_s
        self._now = now
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Drain({self.phase.value}, {self._door.in_flight} in flight)"

    def ask(self) -> None:
        """SIGTERM: begin; the second time: hurry."""
        if self._asked.is_set():
            self._hurry.set()
        self._asked.set()

    async def run(self) -> None:
        """Wait until asked, then take the node out; returns when it may close."""
        await self._asked.wait()
        deadline_s = self._now() + self._deadline_s
        self.phase = Phase.LEAVING
        log.info("leaving: %d requests inside", self._door.in_flight)
        self._leave()
        self._door.leaving = True
        await self._grace(min(self._grace_s, self._deadline_s))
        self.phase = Phase.REFUSING
        self._door.draining = True
        if not await until(lambda: not self._door.in_flight, deadline_s=deadline_s, now=self._now):
            log.error("closing with %d requests inside: time is over", self._door.in_flight)
        self.phase = Phase.CLOSED

    async def _grace(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
                await self._hurry.wait()
        except TimeoutError:
            return
