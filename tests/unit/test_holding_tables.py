"""The state machines of membership, walked as tables."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from headrace.policy.holding import (
    HOLD_NEXT,
    NODE_NEXT,
    HoldEvent,
    HoldState,
    NodeState,
)

Table = Mapping[tuple[Any, Any], Any]


def reachable(table: Table, start: set[Enum]) -> set[Enum]:
    seen = set(start)
    while True:
        found = {after for (before, _), after in table.items() if before in seen} | seen
        if found == seen:
            return seen
        seen = found


@pytest.mark.parametrize(
    ("table", "start", "outside"),
    [
        (NODE_NEXT, {NodeState.RECORDED, NodeState.CONNECTED}, {NodeState.STATIC}),
        (HOLD_NEXT, {HoldState.OFFERED}, set()),
    ],
    ids=["nodes", "holdings"],
)
def test_every_state_is_reachable(table: Table, start: set[Enum], outside: set[Enum]) -> None:
    states = set(type(next(iter(start))))
    assert reachable(table, start) == states - outside


@pytest.mark.parametrize("state", set(HoldState) - {HoldState.GONE}, ids=lambda s: s.value)
def test_every_state_of_a_holding_can_end(state: HoldState) -> None:
    assert HoldState.GONE in reachable(HOLD_NEXT, {state})


@pytest.mark.parametrize("state", set(HoldState) - {HoldState.GONE}, ids=lambda s: s.value)
def test_whatever_a_node_says_is_understood(state: HoldState) -> None:
    said = {
        HoldEvent.ACK,
        HoldEvent.NACK,
        HoldEvent.NACK_LAST,
        HoldEvent.CLAIM,
        HoldEvent.MISSING,
        HoldEvent.REMOVED,
    }
    assert {event for before, event in HOLD_NEXT if before is state} >= said


def test_only_an_acknowledgement_or_a_claim_makes_a_node_an_endpoint() -> None:
    ways = {
        event
        for (before, event), after in HOLD_NEXT.items()
        if after is HoldState.READY and before is not HoldState.READY
    }
    assert ways == {HoldEvent.ACK, HoldEvent.CLAIM}
