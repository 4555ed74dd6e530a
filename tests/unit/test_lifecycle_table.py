"""The table of a version's life is complete and leads somewhere."""

import pytest

from headrace import limits
from headrace_sidecar.gpu.lifecycle import INTERRUPTIBLE, NEXT, Delays, Event, State, settle


def reachable() -> set[State]:
    found, frontier = {State.PLACING}, [State.PLACING]
    while frontier:
        here = frontier.pop()
        onward = {after for (state, _), after in NEXT.items() if state is here} - found
        found |= onward
        frontier += onward
    return found


def test_every_state_is_reached() -> None:
    assert reachable() == set(State)


@pytest.mark.parametrize("state", set(State) - {State.GONE}, ids=lambda state: state.value)
def test_every_state_but_the_last_follows_a_removal(state: State) -> None:
    seen, here = set(), NEXT[state, Event.REMOVED]
    success = {
        State.ENDING: Event.IDLE,
        State.UNLOADING: Event.UNLOADED,
        State.DISCARDING: Event.DISCARDED,
        State.LINGERING: Event.DUE,
    }
    while here is not State.GONE:
        assert here not in seen
        seen.add(here)
        here = NEXT[here, success[here]]


@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
def test_every_state_follows_a_new_assignment(state: State) -> None:
    assert NEXT[state, Event.ASSIGNED] is State.PLACING


def test_only_a_right_golden_answer_leads_to_ready() -> None:
    leading = {pair for pair, after in NEXT.items() if after is State.READY}
    assert leading == {(State.CHECKING, Event.ANSWERED)}


def test_only_states_that_wait_are_interruptible() -> None:
    working = {State.PLACING, State.LOADING, State.CHECKING, State.RESETTING, State.ENDING}
    assert not INTERRUPTIBLE & (working | {State.UNLOADING, State.DISCARDING})


def test_delays_double_up_to_the_longest() -> None:
    delays = Delays(first_s=limits.LOAD_DELAY_S, longest_s=limits.LOAD_DELAY_MAX_S)
    waits = [delays.after(failures) for failures in range(1, 9)]
    assert waits[:3] == [limits.LOAD_DELAY_S * factor for factor in (1, 2, 4)]
    assert waits[-1] == limits.LOAD_DELAY_MAX_S
    assert delays.after(10_000) == limits.LOAD_DELAY_MAX_S


@pytest.mark.parametrize(
    ("failures", "permanent", "acknowledged", "expected"),
    [
        (1, False, False, Event.HELD_UP),
        (limits.LOAD_TRIES, False, False, Event.GAVE_UP),
        (1, True, False, Event.GAVE_UP),
        (100, True, True, Event.HELD_UP),
    ],
    ids=[
        "a failure that may pass is tried again",
        "tries are used up",
        "a permanent failure is given up at once",
        "what was acknowledged is tried for ever",
    ],
)
def test_settling_a_failure(
    failures: int, permanent: bool, acknowledged: bool, expected: Event
) -> None:
    found = settle(
        failures, permanent=permanent, acknowledged=acknowledged, limit=limits.LOAD_TRIES
    )
    assert found is expected
