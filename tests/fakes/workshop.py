"""A model server and a Triton that fail as told, for keepers on a virtual clock."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from headrace.assignment import Assignment
from headrace_sidecar.gpu.agent import Golden, Placed
from headrace_sidecar.gpu.keeper import Keeper
from headrace_sidecar.gpu.lifecycle import State
from headrace_sidecar.gpu.order import Kept, Lanes, Order
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.setback import Setback
from tests.fakes.sidecar_assignments import identity
from tests.fakes.virtual_clock import now

STEP_S = 0.1
GOLDEN = Golden(msgspec.Raw(b"{}"), ())


class Workshop:
    """Steps that take STEP_S each. ``fail`` says what goes wrong next, step by step."""

    def __init__(self) -> None:
        self.up = True
        self.incarnation = 1
        self.loaded: dict[str, Assignment] = {}
        self.placed: dict[str, Assignment] = {}
        self.fail: Callable[[str, Assignment], Setback | None] = lambda step, assignment: None
        self.done: Counter[str] = Counter()
        self.restarts = 0
        self.at_once = 0
        self.most_at_once = 0

    def restart(self) -> None:
        """Triton is another process: nothing is loaded."""
        self.incarnation += 1
        self.loaded.clear()

    async def place(self, assignment: Assignment) -> Placed:
        await self._step("place", assignment)
        self.placed[assignment.name] = assignment
        return Placed(assignment.name, GOLDEN)

    async def holds(self, assignment: Assignment) -> bool:
        return assignment.name in self.loaded

    async def load(self, assignment: Assignment) -> None:
        self._check_up()
        await self._step("load", assignment)
        self._check_up()
        self.loaded[assignment.name] = assignment

    async def check(self, assignment: Assignment, question: Golden) -> None:
        self._check_up()
        await self._step("check", assignment)
        if self.loaded.get(assignment.name) != assignment:
            raise Setback("it is not loaded")

    async def unload(self, assignment: Assignment) -> None:
        await self._step("unload", assignment)
        self.loaded.pop(assignment.name, None)

    async def discard(self, assignment: Assignment) -> None:
        await self._step("discard", assignment)
        self.placed.pop(assignment.name, None)

    async def restart_triton(self) -> bool:
        self.restarts += 1
        self.restart()
        return True

    def _check_up(self) -> None:
        if not self.up:
            raise Setback("Triton is not there", counted=False)

    async def _step(self, step: str, assignment: Assignment) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.done[step] += 1
        setback = self.fail(step, assignment)
        await asyncio.sleep(STEP_S)
        self.at_once -= 1
        if setback is not None:
            raise setback


class Told:
    """What keepers report."""

    def __init__(self) -> None:
        self.acks: list[str | None] = []
        self.nacks: dict[str | None, str] = {}
        self.nacked_s: float | None = None
        self.states: list[State] = []

    def kept(self, keeper: Kept, order: Order) -> None:
        self.acks.append(order.nonce)

    def refused(self, keeper: Kept, order: Order, reason: str) -> None:
        self.nacks[order.nonce] = reason
        self.nacked_s = now()

    def gone(self, keeper: Kept, order: Order) -> None:
        self.acks.append(order.nonce)

    def entered(self, keeper: Kept, state: State) -> None:
        self.states.append(state)


class Node:
    """Keepers in one workshop."""

    def __init__(self) -> None:
        self.workshop = Workshop()
        self.told = Told()
        self.serving = Serving(node="n1")
        self.lanes = Lanes()

    def keeper(self, order: Order) -> Keeper:
        return Keeper(
            order,
            serving=self.serving,
            steps=self.workshop,
            reporter=self.told,
            lanes=self.lanes,
            now=now,
        )

    @asynccontextmanager
    async def keeping(self, *orders: Order) -> AsyncIterator[list[Keeper]]:
        """Keepers at work; they end with the block."""
        keepers = [self.keeper(order) for order in orders]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(keeper.run()) for keeper in keepers]
            yield keepers
            for task in running:
                task.cancel()


def order(
    nonce: str | None, *, model: str = "m", adopted: bool = False, delay_ms: str = ""
) -> Order:
    """An order for a version; another delay makes it other content."""
    assignment = identity(model, delay_ms=delay_ms) if delay_ms else identity(model)
    return Order(nonce, f"v-{nonce}", assignment, adopted=adopted)


def removal(nonce: str) -> Order:
    """An order to let go."""
    return Order(nonce, "", None)
