"""``Keeper``: takes one model version through its life, as ``lifecycle.py`` says.

One task a version. Orders come from the control server, losses from the watch on health, and both
only leave a note: the task acts on notes between two steps, so steps never overlap. An update
keeps the old content serving until Triton has switched; when the new content is refused, the old
one is put back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace import limits
from headrace.assignment import Assignment
from headrace_sidecar.gpu.agent import Golden
from headrace_sidecar.gpu.lifecycle import INTERRUPTIBLE, NEXT, Delays, Event, State, settle
from headrace_sidecar.gpu.order import Lanes, Order, Reporter, Steps, same_content
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.setback import Setback
from headrace_sidecar.gpu.until import until

_DELAYS: Final = Delays(limits.LOAD_DELAY_S, limits.LOAD_DELAY_MAX_S)
_ABSENT_S: Final = 1.0
"""Longest wait while the model server is not there."""
_LOUD: Final = frozenset({State.READY, State.RESETTING, State.FAILED, State.GONE})

log = logging.getLogger(__name__)


class Keeper:
    """The life of one model version on this node."""

    def __init__(
        self,
        order: Order,
        *,
        serving: Serving,
        steps: Steps,
        reporter: Reporter,
        lanes: Lanes,
        now: Callable[[], float],
    ) -> None:
        assert order.assignment is not None
        self.assignment = order.assignment
        self.state = State.PLACING
        self.reason = ""
        """Why it is not ready."""
        self.golden: Golden | None = None
        self.loaded_s: float | None = None
        """When Triton last loaded it: what happened before says nothing about it."""
        self._told: tuple[State, str] | None = None
        self._order = order
        self._adopting = order.adopted
        self._answered = False
        self._good: Order | None = None
        self._note: Event | None = None
        self._wake = asyncio.Event()
        self._failures = 0
        self._triton_failures = 0
        self._restart_asked = False
        self._counted = True
        self._loaded_in = -1
        self._serving = serving
        self._steps = steps
        self._reporter = reporter
        self._lanes = lanes
        self._now = now
        self.served = serving.put(order.assignment)
        self._act: dict[State, Callable[[], Awaitable[Event]]] = {
            State.PLACING: self._place,
            State.LOADING: self._load,
            State.CHECKING: self._check,
            State.READY: self._watch,
            State.WAITING: self._wait,
            State.RESETTING: self._reset,
            State.FAILED: self._rest,
            State.ENDING: self._end,
            State.UNLOADING: self._unload,
            State.DISCARDING: self._discard,
            State.LINGERING: self._wait,
        }

    def __repr__(self) -> str:
        """One line for operators."""
        why = f": {self.reason}" if self.reason else ""
        return f"Keeper({self.assignment.name} {self.state.value}{why}, {self._failures} failures)"

    @property
    def name(self) -> str:
        """Resource name of the version."""
        return self.assignment.name

    @property
    def _is_loaded(self) -> bool:
        """Whether the Triton that loaded it last is still there."""
        return self._steps.up and self._steps.incarnation == self._loaded_in

    def order(self, order: Order) -> None:
        """Take a newer order. Content that is there, or on its way, is not made again."""
        same = order.assignment is not None and self._same(order.assignment)
        self._order, self._answered = order, False
        self._adopting = self._adopting and same
        if same and self.state is State.READY and self._note is None:
            self._acknowledge()
        elif not same or self.state is State.FAILED:
            self._failures = 0
            self._leave_note(Event.ASSIGNED if order.assignment is not None else Event.REMOVED)

    def lose(self, reason: str) -> bool:
        """The version stopped answering: repair it; False when it is being worked on already."""
        if self.state is not State.READY or self._note is not None:
            return False
        self._unready(reason)
        self._leave_note(Event.LOST)
        return True

    def look(self) -> None:
        """Look anew whether Triton is still the one that loaded the version."""
        if self.served.ready and not self._is_loaded:
            self._unready("Triton is being restarted")
        self._wake.set()

    async def run(self) -> None:
        """Keep the version until it is gone."""
        while self.state is not State.GONE:
            event = await self._act[self.state]()
            if self._note in (Event.ASSIGNED, Event.REMOVED) or self.state in INTERRUPTIBLE:
                event, self._note = self._note or event, None
            self._enter(NEXT[self.state, event])
        self._serving.drop(self.assignment.model, self.assignment.version)
        self._reporter.gone(self, self._order)

    # --- orders and answers ---------------------------------------------------------------------

    def _same(self, assignment: Assignment) -> bool:
        """Whether that content is what this keeper has, or works on; the attempt is no content."""
        wanted = self._order.assignment
        return wanted is not None and same_content(assignment, wanted)

    def _leave_note(self, event: Event) -> None:
        self._note = event
        self._wake.set()

    def _acknowledge(self) -> None:
        self._answered = True
        self._good = self._order
        self._reporter.kept(self, self._order)

    def _enter(self, state: State) -> None:
        why = f": {self.reason}" if self.reason else ""
        told = (state, self.reason)
        loud = state in _LOUD or (state is State.WAITING and told != self._told)
        log.log(logging.INFO if loud else logging.DEBUG, "%s is %s%s", self.name, state.value, why)
        self._told = told if loud else self._told
        self.state = state
        if state is State.PLACING and self._order.assignment is not None:
            self.assignment = self._order.assignment
        if state is State.READY:
            self._ready()
        if state is State.FAILED:
            self._give_up()
        self._reporter.entered(self, state)

    def _ready(self) -> None:
        self._failures = self._triton_failures = 0
        self._restart_asked, self.reason = False, ""
        self._serving.set_ready(self.assignment.model, self.assignment.version)
        if not self._answered:
            self._acknowledge()

    def _give_up(self) -> None:
        """Refuse the order, and go back to the content that worked, where there was one."""
        refused, self._answered = self._order, True
        self._reporter.refused(self, refused, self.reason)
        if self._good is not None and self._good is not refused:
            self._order = Order(None, self._good.resource_version, self._good.assignment)
            self._failures = 0
            self._leave_note(Event.ASSIGNED)

    def _unready(self, reason: str) -> None:
        self.reason = reason
        self._serving.set_unready(self.assignment.model, self.assignment.version, reason)

    # --- steps ----------------------------------------------------------------------------------

    @property
    def _lane(self) -> asyncio.Semaphore:
        return self._lanes.repairs if self._answered else self._lanes.orders

    async def _place(self) -> Event:
        async with self._lane:
            try:
                placed = await self._steps.place(self.assignment)
            except Setback as setback:
                return self._held_up(setback)
        self.golden = placed.golden
        return Event.PLACED

    async def _load(self) -> Event:
        incarnation = self._steps.incarnation
        async with self._lane:
            try:
                adopting, self._adopting = self._adopting, False
                if not adopting or not await self._steps.holds(self.assignment):
                    await self._steps.load(self.assignment)
            except Setback as setback:
                self._triton_failures += setback.counted
                return self._held_up(setback)
        self._loaded_in = incarnation
        self.loaded_s = self._now()
        # Only now do callers see the new content's tensors: until here the old one answered.
        self._serving.put(self.assignment)
        return Event.LOADED

    async def _check(self) -> Event:
        assert self.golden is not None
        async with self._lane:
            try:
                await self._steps.check(self.assignment, self.golden)
            except Setback as setback:
                self._unready(setback.message)
                self._triton_failures += setback.counted
                return self._held_up(setback)
        return Event.ANSWERED

    async def _watch(self) -> Event:
        while self._note is None:
            if not self._is_loaded:
                self._unready("Triton is being restarted")
                return Event.RESTARTED
            await self._woken()
        return Event.LOST

    async def _wait(self) -> Event:
        await self._ask_for_new_triton()
        self._wake.clear()
        delay_s = _DELAYS.after(self._failures) if self._counted else _ABSENT_S
        try:
            async with asyncio.timeout(delay_s):
                # Where only Triton is missing, its return ends the wait.
                while self._note is None and (self._counted or not self._steps.up):
                    await self._woken()
        except TimeoutError:
            pass
        return Event.DUE

    async def _ask_for_new_triton(self) -> None:
        """After repairs that Triton failed, once a loss: the others pay for a restart, too."""
        if not self._answered or self._triton_failures < limits.REPAIR_TRIES:
            return
        if self._restart_asked:
            return
        try:
            self._restart_asked = await self._steps.restart_triton()
        except Setback as setback:
            log.warning("Triton cannot be restarted: %s", setback.message)

    async def _reset(self) -> Event:
        try:
            await self._steps.unload(self.assignment)
        except Setback as setback:
            self._triton_failures += setback.counted
            return self._held_up(setback)
        return Event.UNLOADED

    async def _rest(self) -> Event:
        while self._note is None:
            await self._woken()
        return self._note

    async def _end(self) -> Event:
        self._unready("is being removed")
        await until(
            lambda: not self.served.in_flight,
            deadline_s=self._now() + limits.REMOVAL_S,
            now=self._now,
        )
        return Event.IDLE

    async def _unload(self) -> Event:
        return await self._let_go(self._steps.unload, Event.UNLOADED)

    async def _discard(self) -> Event:
        return await self._let_go(self._steps.discard, Event.DISCARDED)

    async def _let_go(self, step: Callable[[Assignment], Awaitable[None]], done: Event) -> Event:
        try:
            await step(self.assignment)
        except Setback as setback:
            self._note_failure(setback)
            return Event.HELD_UP
        return done

    async def _woken(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    def _note_failure(self, setback: Setback) -> None:
        self.reason, self._counted = setback.message, setback.counted
        self._failures += setback.counted

    def _held_up(self, setback: Setback) -> Event:
        self._note_failure(setback)
        if not self.served.ready:
            self.served.reason = setback.message
        if not setback.counted:
            return Event.HELD_UP
        return settle(
            self._failures,
            permanent=setback.permanent,
            acknowledged=self._answered,
            limit=limits.LOAD_TRIES,
        )
