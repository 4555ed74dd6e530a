"""``Assignments``: the control server's orders, one keeper each, and what is said back.

Implements the handler of the ADS client. ACK when a version is ready as ordered or gone as
ordered, NACK when it was given up. Acknowledged versions are on record, so that a restarted
sidecar takes them up again and claims them.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from headrace import limits, names
from headrace.assignment import Assignment, from_json
from headrace_sidecar.adsclient.messages import Assigned, Removed
from headrace_sidecar.gpu.keeper import Keeper
from headrace_sidecar.gpu.lifecycle import State
from headrace_sidecar.gpu.order import Kept, Lanes, Order, Steps, same_content
from headrace_sidecar.gpu.records import Record, Records
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.until import until

_SETTLED: Final = frozenset({State.READY, State.FAILED, State.GONE})

log = logging.getLogger(__name__)


class Control(Protocol):
    """Who is answered: the ADS client."""

    def ack(self, nonce: str) -> None:
        """It is done."""

    def nack(self, nonce: str, message: str) -> None:
        """It was given up."""


class Chronicle(Protocol):
    """Who counts what happens to versions."""

    def entered(self, assignment: Assignment, state: State) -> None:
        """A version entered a state."""

    def loaded(self, assignment: Assignment, duration_s: float) -> None:
        """A version became ready so long after it was ordered."""


class Assignments:
    """Every version this node holds or works on."""

    def __init__(
        self,
        *,
        serving: Serving,
        steps: Steps,
        records: Records,
        chronicle: Chronicle,
        now: Callable[[], float],
    ) -> None:
        self.connected_to_control = False
        self.control: Control | None = None
        self._serving = serving
        self._steps = steps
        self._records = records
        self._chronicle = chronicle
        self._now = now
        self._lanes = Lanes()
        self._keepers: dict[str, Keeper] = {}
        self._ordered_s: dict[str, float] = {}
        self._inbox: asyncio.Queue[Keeper] = asyncio.Queue(limits.ASSIGNMENTS_PER_NODE)

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Assignments({list(self._keepers.values())})"

    @property
    def keepers(self) -> Mapping[str, Keeper]:
        """Keepers by resource name."""
        return self._keepers

    async def run(self) -> None:
        """Keep what is ordered until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                keeper = await self._inbox.get()
                tasks.create_task(keeper.run(), name=f"keep {keeper.name}")

    def look(self) -> None:
        """Triton came, went or is another: every keeper looks anew."""
        for keeper in self._keepers.values():
            keeper.look()

    async def adopt(self) -> dict[str, str]:
        """Take up what was ready before this process; versions that answer, to be claimed.

        What does not answer in time is let go: the control server sends it again if it is wanted.
        """
        for name, record in self._records.all.items():
            order = Order(None, record.resource_version, record.assignment, adopted=True)
            self._order(name, order)
        adopted = list(self._keepers.values())
        # Without Triton nothing can answer: register at once, and say that nothing is ready.
        await until(
            lambda: not self._steps.up or all(one.state in _SETTLED for one in adopted),
            deadline_s=self._now() + limits.ADOPT_S,
            now=self._now,
        )
        claims = {}
        for name, record in self._records.all.items():
            keeper = self._keepers.get(name)
            if keeper is not None and keeper.state is State.READY:
                claims[name] = record.resource_version
            elif keeper is not None:
                self._records.drop(name)
                keeper.order(Order(None, "", None))
        return claims

    # --- the ADS client's handler ---------------------------------------------------------------

    def assigned(self, assigned: Assigned) -> None:
        """Begin to hold a version."""
        decoded = _decode(assigned)
        if isinstance(decoded, str):
            self._nack(assigned.nonce, decoded)
            return
        record = self._records.all.get(assigned.name)
        if record is not None and not same_content(record.assignment, decoded):
            # From here on Triton may hold either content, and a record promises one.
            self._records.drop(assigned.name)
        self._order(assigned.name, Order(assigned.nonce, assigned.version, decoded))

    def removed(self, removed: Removed) -> None:
        """Begin to let go of a version; one that is not here is gone already."""
        keeper = self._keepers.get(removed.name)
        self._records.drop(removed.name)
        if keeper is None:
            self._ack(removed.nonce)
            return
        keeper.order(Order(removed.nonce, "", None))

    def connected(self) -> None:
        """The control stream is open."""
        self.connected_to_control = True
        log.info("connected to the control server")

    def disconnected(self, reason: str) -> None:
        """The control stream ended: what is here stays here."""
        if self.connected_to_control:
            log.warning("lost the control server: %s", reason)
        self.connected_to_control = False

    # --- what keepers report --------------------------------------------------------------------

    def kept(self, keeper: Kept, order: Order) -> None:
        """ACK, and put on record."""
        self._records.keep(Record(order.resource_version, keeper.assignment))
        started_s = self._ordered_s.pop(keeper.name, None)
        if started_s is not None:
            self._chronicle.loaded(keeper.assignment, self._now() - started_s)
        self._ack(order.nonce)

    def refused(self, keeper: Kept, order: Order, reason: str) -> None:
        """NACK."""
        self._ordered_s.pop(keeper.name, None)
        self._nack(order.nonce, f"{keeper.name}: {reason}")

    def gone(self, keeper: Kept, order: Order) -> None:
        """ACK a removal."""
        if self._keepers.get(keeper.name) is keeper:
            del self._keepers[keeper.name]
        self._ack(order.nonce)

    def entered(self, keeper: Kept, state: State) -> None:
        """Count it."""
        self._chronicle.entered(keeper.assignment, state)

    def _order(self, name: str, order: Order) -> None:
        self._ordered_s[name] = self._now()
        keeper = self._keepers.get(name)
        if keeper is not None:
            keeper.order(order)
            return
        if self._inbox.full() or len(self._keepers) >= limits.ASSIGNMENTS_PER_NODE:
            self._nack(order.nonce, "this node holds as many versions as it may")
            return
        keeper = Keeper(
            order,
            serving=self._serving,
            steps=self._steps,
            reporter=self,
            lanes=self._lanes,
            now=self._now,
        )
        self._keepers[name] = keeper
        self._inbox.put_nowait(keeper)

    def _ack(self, nonce: str | None) -> None:
        if nonce is not None and self.control is not None:
            self.control.ack(nonce)

    def _nack(self, nonce: str | None, message: str) -> None:
        if nonce is not None and self.control is not None:
            self.control.nack(nonce, message)


def _decode(assigned: Assigned) -> Assignment | str:
    """The assignment in a resource, or why there is none."""
    if assigned.kind != names.ASSIGNMENT_KIND:
        return f"{assigned.name}: {assigned.kind} is not {names.ASSIGNMENT_KIND}"
    try:
        assignment = from_json(assigned.value)
    except msgspec.ValidationError as error:
        return f"{assigned.name}: {error}"
    if assignment.name != assigned.name:
        return f"{assigned.name}: the assignment inside is {assignment.name}"
    return assignment
