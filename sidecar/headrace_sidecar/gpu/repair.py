"""``Repair``: finds ready versions that stopped answering and gives them up for repair.

Two ways to notice: Triton said that the process of a model died, or a version is silent and does
not give the golden answer. The repair itself is the keeper's: unready at once, unload, load, check.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from headrace import limits, names
from headrace.assignment import Assignment
from headrace_sidecar.gpu.agent import Golden
from headrace_sidecar.gpu.keeper import Keeper
from headrace_sidecar.gpu.lifecycle import State
from headrace_sidecar.gpu.pulse import Pulse, patience_s
from headrace_sidecar.gpu.setback import Setback

PERIOD_S: Final = 0.2

log = logging.getLogger(__name__)


class Prober(Protocol):
    """Who asks the golden question."""

    async def probe(self, assignment: Assignment, question: Golden, *, timeout_s: float) -> bool:
        """Ask a ready version for a sign of life; False: its queue was too full to ask."""


class Repair:
    """Watches every keeper that is ready."""

    def __init__(
        self,
        keepers: Mapping[str, Keeper],
        *,
        prober: Prober,
        service_s: Callable[[str], float],
        executed: Callable[[str], int],
        abandon: Callable[[str], Awaitable[None]],
        repaired: Callable[[Assignment, str], None],
        now: Callable[[], float],
    ) -> None:
        self._keepers = keepers
        self._prober = prober
        self._service_s = service_s
        self._executed = executed
        self._abandon = abandon
        self._repaired = repaired
        self._now = now
        self._pulses: dict[str, Pulse] = {}
        self._asked: set[str] = set()
        self._left_behind: asyncio.Queue[str] = asyncio.Queue(limits.ASSIGNMENTS_PER_NODE)

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Repair(watching {len(self._pulses)}, asking {sorted(self._asked)})"

    def stub_died(self, triton_model: str) -> None:
        """Triton said that the process of a model is dead."""
        for keeper in self._keepers.values():
            assignment = keeper.assignment
            if names.triton_model(assignment.model, assignment.version) == triton_model:
                self._lose(keeper, "died", "its process died")
                return

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._give_up(), name="give up lost requests")
            while True:
                for name in self._due():
                    self._asked.add(name)
                    tasks.create_task(self._ask(name), name=f"probe {name}")
                await asyncio.sleep(PERIOD_S)

    def _due(self) -> list[str]:
        """Versions to ask now, no more at once than the limit allows."""
        now_s = self._now()
        ready = {name: one for name, one in self._keepers.items() if one.state is State.READY}
        self._pulses = {name: self._pulses.get(name) or Pulse(now_s=now_s) for name in ready}
        due = []
        for name, keeper in ready.items():
            pulse, in_flight = self._pulses[name], keeper.served.in_flight
            pulse.sign(keeper.loaded_s or now_s)
            pulse.observe(in_flight=in_flight, completed=self._completed(keeper), now_s=now_s)
            if name not in self._asked and pulse.due(service_s=self._service_s(name), now_s=now_s):
                due.append(name)
        return due[: max(0, limits.PROBES_IN_FLIGHT - len(self._asked))]

    async def _ask(self, name: str) -> None:
        keeper = self._keepers[name]
        loaded_s, completed = keeper.loaded_s, self._completed(keeper)
        try:
            reason = await self._question(keeper)
        finally:
            self._asked.discard(name)
        pulse = self._pulses.get(name)
        if not reason and pulse is not None:
            pulse.sign(self._now())
        elif reason and (keeper.loaded_s, self._completed(keeper)) == (loaded_s, completed):
            # It was not loaded anew meanwhile, and it did not answer anybody else either.
            self._lose(keeper, "silent", reason)

    async def _question(self, keeper: Keeper) -> str:
        """Why a version has to be repaired, "" when it is well."""
        assert keeper.golden is not None
        service_s = self._service_s(keeper.name)
        patience = patience_s(service_s)
        try:
            if await self._prober.probe(keeper.assignment, keeper.golden, timeout_s=patience):
                return ""
        except Setback as setback:
            return setback.message
        # A full queue proves nothing either way; work inside that does not end does.
        await asyncio.sleep(patience)
        pulse = self._pulses.get(keeper.name)
        stalled = pulse is not None and pulse.stalled(service_s=service_s, now_s=self._now())
        return "its queue is full and nothing completes" if stalled else ""

    def _completed(self, keeper: Keeper) -> int:
        """What the version completed, for callers of this node and for whoever asks Triton."""
        return keeper.served.completed_total + self._executed(keeper.name)

    def _lose(self, keeper: Keeper, cause: str, reason: str) -> None:
        assignment = keeper.assignment
        if not keeper.lose(reason):
            return
        log.warning("%s is lost: %s", keeper.name, reason)
        self._repaired(assignment, cause)
        if not self._left_behind.full():
            triton_model = names.triton_model(assignment.model, assignment.version)
            self._left_behind.put_nowait(triton_model)

    async def _give_up(self) -> None:
        """End what waits inside dead processes: it would not by itself, and may run elsewhere."""
        while True:
            await self._abandon(await self._left_behind.get())
