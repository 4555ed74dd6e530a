"""The life of one model version on a node, as a table. Pure: ``keeper.py`` acts it out.

A state is something to do; how it went is an event; the table says what is next. A newer order
(``ASSIGNED``, ``REMOVED``) is looked at only between two doings, so nothing is left half done.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class State(enum.Enum):
    """What is being done for the version."""

    PLACING = "placing"
    """The model server verifies the weights and writes the repository folder."""
    LOADING = "loading"
    """Triton loads it."""
    CHECKING = "checking"
    """It is asked the golden question."""
    READY = "ready"
    """It answers."""
    WAITING = "waiting"
    """Something failed that may pass: wait, then place it again."""
    RESETTING = "resetting"
    """It was lost while ready: Triton unloads what is left, to load it anew."""
    FAILED = "failed"
    """Given up, until another order comes."""
    ENDING = "ending"
    """It is to go: requests inside finish."""
    UNLOADING = "unloading"
    """Triton unloads it."""
    DISCARDING = "discarding"
    """The model server deletes its folder."""
    LINGERING = "lingering"
    """Letting go failed: wait, then try again."""
    GONE = "gone"
    """Nothing is left of it."""


class Event(enum.Enum):
    """How a doing went, or what happened meanwhile."""

    ASSIGNED = "assigned"
    REMOVED = "removed"
    PLACED = "placed"
    LOADED = "loaded"
    ANSWERED = "answered"
    HELD_UP = "held up"
    """It failed in a way that may pass."""
    GAVE_UP = "gave up"
    """It failed for good."""
    LOST = "lost"
    """It stopped answering."""
    RESTARTED = "restarted"
    """Triton is another process, with nothing loaded."""
    DUE = "due"
    """The wait is over."""
    IDLE = "idle"
    """No request is inside, or they had their time."""
    UNLOADED = "unloaded"
    DISCARDED = "discarded"


_DOING: Final[Mapping[tuple[State, Event], State]] = {
    (State.PLACING, Event.PLACED): State.LOADING,
    (State.PLACING, Event.HELD_UP): State.WAITING,
    (State.PLACING, Event.GAVE_UP): State.FAILED,
    (State.LOADING, Event.LOADED): State.CHECKING,
    (State.LOADING, Event.HELD_UP): State.WAITING,
    (State.LOADING, Event.GAVE_UP): State.FAILED,
    (State.CHECKING, Event.ANSWERED): State.READY,
    (State.CHECKING, Event.HELD_UP): State.WAITING,
    (State.CHECKING, Event.GAVE_UP): State.FAILED,
    (State.READY, Event.LOST): State.RESETTING,
    (State.READY, Event.RESTARTED): State.PLACING,
    (State.WAITING, Event.DUE): State.PLACING,
    (State.RESETTING, Event.UNLOADED): State.PLACING,
    (State.RESETTING, Event.HELD_UP): State.WAITING,
    (State.ENDING, Event.IDLE): State.UNLOADING,
    (State.UNLOADING, Event.UNLOADED): State.DISCARDING,
    (State.UNLOADING, Event.HELD_UP): State.LINGERING,
    (State.DISCARDING, Event.DISCARDED): State.GONE,
    (State.DISCARDING, Event.HELD_UP): State.LINGERING,
    (State.LINGERING, Event.DUE): State.UNLOADING,
}
_LEAVING: Final = frozenset({State.UNLOADING, State.DISCARDING, State.LINGERING})

NEXT: Final[Mapping[tuple[State, Event], State]] = {
    **_DOING,
    # An order may come at any time. What is already on its way out need not end twice.
    **{(state, Event.ASSIGNED): State.PLACING for state in State},
    **{
        (state, Event.REMOVED): State.UNLOADING if state in _LEAVING else State.ENDING
        for state in State
        if state is not State.GONE
    },
}
"""State that follows a state and an event; a pair that is missing cannot happen."""

INTERRUPTIBLE: Final = frozenset({State.READY, State.WAITING, State.FAILED, State.LINGERING})
"""States that only wait: an order is followed at once. In all others it waits for the doing."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Waits between tries: ``first_s``, doubling, at most ``longest_s``."""

    first_s: float
    longest_s: float

    def after(self, failures: int) -> float:
        """Wait after so many failures in a row, one or more."""
        return min(self.first_s * 2.0 ** (min(failures, 32) - 1), self.longest_s)


def settle(failures: int, *, permanent: bool, acknowledged: bool, limit: int) -> Event:
    """Whether to try again after a failure.

    What was acknowledged once can no longer be refused, so it is tried for ever. The first order
    of a version is given up when the failure is permanent or the tries are used up.
    """
    if acknowledged:
        return Event.HELD_UP
    return Event.GAVE_UP if permanent or failures >= limit else Event.HELD_UP
