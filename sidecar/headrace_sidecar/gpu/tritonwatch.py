"""``TritonWatch``: which tritonserver is there, as its supervisor says, and moving on to a new one.

The model server restarts tritonserver by itself. What counts here is to notice soon: everything
that was loaded is gone with the old process.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headrace_sidecar.gpu.agent import Agent, TritonStatus
from headrace_sidecar.gpu.setback import Setback
from headrace_sidecar.gpu.triton import Triton

PERIOD_S: Final = 0.25

log = logging.getLogger(__name__)


class TritonWatch:
    """What is known about tritonserver; calls ``on_change`` when it comes, goes or is another."""

    def __init__(self, agent: Agent, triton: Triton) -> None:
        self.status: TritonStatus | None = None
        self.on_change: list[Callable[[], None]] = []
        self.looked = asyncio.Event()
        """Set once it is known whether Triton is there."""
        self._agent = agent
        self._triton = triton
        self._up = False
        self._complaint = ""

    def __repr__(self) -> str:
        """One line for operators."""
        return f"TritonWatch(up={self._up} incarnation={self.incarnation} {self._complaint})"

    @property
    def up(self) -> bool:
        """Whether Triton answers."""
        return self._up

    @property
    def incarnation(self) -> int:
        """Rises whenever Triton is another process; 0 before the first is known."""
        return self.status.incarnation if self.status is not None else 0

    @property
    def metrics_address(self) -> str:
        """Where Triton's own metrics are, "" before that is known."""
        return self.status.metrics_address if self.status is not None else ""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.look()
            self.looked.set()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Look once."""
        before = (self._up, self.incarnation)
        try:
            status = (await self._agent.status()).triton
        except Setback as setback:
            self._complain(setback.message)
            # Triton may be well without its supervisor; then its models still answer.
            self._up = self._up and await self._triton.live()
        else:
            self._complain("")
            await self._follow(status)
        if (self._up, self.incarnation) != before:
            log.info("Triton %d is %s", self.incarnation, "up" if self._up else "not there")
            for changed in self.on_change:
                changed()

    async def _follow(self, status: TritonStatus) -> None:
        target = f"unix:{status.grpc_socket}"
        another = self.status is not None and status.incarnation != self.status.incarnation
        if another or (status.alive and target != self._triton.target):
            await self._triton.reconnect(target)
        self.status = status
        self._up = status.alive

    def _complain(self, text: str) -> None:
        if text and text != self._complaint:
            log.warning("%s", text)
        self._complaint = text
