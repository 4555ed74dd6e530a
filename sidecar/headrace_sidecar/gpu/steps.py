"""``Steps``: what is done to a model version, each step one call; failures are ``Setback``."""

from collections.abc import Callable
from typing import Protocol

from headrace import limits, names
from headrace.assignment import Assignment
from headrace.refusals import Refused
from headrace_sidecar.gpu import golden
from headrace_sidecar.gpu.agent import Agent, Golden, Placed
from headrace_sidecar.gpu.setback import Setback
from headrace_sidecar.gpu.triton import Triton


class TritonState(Protocol):
    """Whether Triton answers, and which one it is."""

    @property
    def up(self) -> bool:
        """Whether it answers."""

    @property
    def incarnation(self) -> int:
        """Rises whenever Triton is another process."""


class Steps:
    """Carries out steps at the model server and in Triton."""

    def __init__(
        self, agent: Agent, triton: Triton, state: TritonState, *, now: Callable[[], float]
    ) -> None:
        self._agent = agent
        self._triton = triton
        self._state = state
        self._now = now
        self._restarted_s: float | None = None
        self.restarts_total = 0

    @property
    def incarnation(self) -> int:
        """Which Triton this is; what another one had loaded is lost."""
        return self._state.incarnation

    @property
    def up(self) -> bool:
        """Whether Triton answers."""
        return self._state.up

    async def place(self, assignment: Assignment) -> Placed:
        """Have weights verified and the repository folder written."""
        return await self._agent.place(assignment)

    async def holds(self, assignment: Assignment) -> bool:
        """Whether Triton has the version loaded; it says so of one whose process died, too."""
        return self._state.up and await self._triton.ready(_triton_model(assignment))

    async def load(self, assignment: Assignment) -> None:
        """Load the version into Triton."""
        self._check_up()
        try:
            await self._triton.load(_triton_model(assignment))
        except Refused as refused:
            raise Setback(f"Triton did not load it: {refused.message}") from refused

    async def check(self, assignment: Assignment, question: Golden) -> None:
        """Ask the golden question until it can be asked; the wrong answer is a Setback."""
        self._check_up()
        try:
            await golden.ask(self._triton, assignment, question, timeout_s=limits.GOLDEN_S)
        except golden.Busy as busy:
            raise Setback("it has too much work to be asked", counted=False) from busy

    async def probe(self, assignment: Assignment, question: Golden, *, timeout_s: float) -> bool:
        """Ask a ready version for a sign of life; False: its queue was too full to ask."""
        try:
            await golden.ask(self._triton, assignment, question, timeout_s=timeout_s)
        except golden.Busy:
            return False
        return True

    async def unload(self, assignment: Assignment) -> None:
        """Unload the version from Triton; there is nothing to do when Triton is not there."""
        if not self._state.up:
            return
        try:
            await self._triton.unload(_triton_model(assignment))
        except Refused as refused:
            raise Setback(f"Triton did not unload it: {refused.message}") from refused

    async def discard(self, assignment: Assignment) -> None:
        """Have the repository folder deleted."""
        await self._agent.discard(assignment.model, assignment.version)

    async def restart_triton(self) -> bool:
        """Ask for a new Triton, unless that was done lately; whether it was asked for."""
        now_s = self._now()
        last_s = self._restarted_s
        if last_s is not None and now_s - last_s < limits.TRITON_RESTART_PERIOD_S:
            return False
        self._restarted_s = now_s
        await self._agent.restart_triton()
        self.restarts_total += 1
        return True

    def _check_up(self) -> None:
        if not self._state.up:
            raise Setback("Triton is not there", counted=False)


def _triton_model(assignment: Assignment) -> str:
    return names.triton_model(assignment.model, assignment.version)
