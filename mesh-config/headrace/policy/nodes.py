"""GPU nodes as membership knows them: what each is told to hold, and what it serves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.policy.holding import (
    HOLD_NEXT,
    NODE_NEXT,
    HoldEvent,
    HoldState,
    NodeEvent,
    NodeState,
)
from headrace.policy.record import NodeInfo


@dataclass(frozen=True)
class Wanted:
    """A model version, the pools whose nodes must hold it, and what an edit would change."""

    pools: frozenset[str]
    fingerprint: str
    version_at: Callable[[int], str] = field(compare=False)
    """Content hash under which an attempt is offered."""


@dataclass(frozen=True)
class Holder:
    """A node that serves a model version."""

    info: NodeInfo
    draining: bool


_ENDS_SERVING: Final = frozenset({HoldEvent.MISSING, HoldEvent.REMOVED, HoldEvent.WITHDRAW})


@dataclass
class Holding:
    """A model version on a node: ``version`` is the content hash it acknowledged last.

    A node that ``serves`` is an endpoint. A refused edit does not end it: nodes put back what
    they had, and one bad edit must not take every endpoint away.
    """

    state: HoldState = HoldState.OFFERED
    serves: bool = False
    version: str = ""
    attempt: int = 0
    message: str = ""
    retry_at_s: float = 0.0
    since_s: float = 0.0
    retires_at_s: float | None = None
    """When it is withdrawn at the latest, where its node's pool was taken out of the placement. It
    is no endpoint any more, and is held until gateways have heard of that."""

    @property
    def is_endpoint(self) -> bool:
        """Whether gateways may be told to send requests here."""
        return self.serves and self.retires_at_s is None

    def apply(self, event: HoldEvent, *, now_s: float) -> None:
        """Step the state machine; ``since_s`` is when the state last changed."""
        after = HOLD_NEXT[self.state, event]
        if after is not self.state:
            self.since_s = now_s
        self.state = after
        if after is HoldState.WITHDRAWN:
            self.serves, self.retires_at_s = False, None
        elif after is HoldState.READY or event is HoldEvent.CLAIM_OLDER:
            self.serves = True
        elif event in _ENDS_SERVING:
            self.serves = False


@dataclass
class Node:
    """A GPU node, its control streams, and what it was told to hold."""

    info: NodeInfo
    state: NodeState
    since_s: float
    streams: set[int] = field(default_factory=set)
    holdings: dict[str, Holding] = field(default_factory=dict)

    def apply(self, event: NodeEvent, *, now_s: float) -> None:
        """Step the state machine; ``since_s`` is when the state last changed."""
        after = NODE_NEXT[self.state, event]
        if after is not self.state:
            self.since_s = now_s
        self.state = after


SERVING: Final = frozenset(
    {
        NodeState.RECORDED,
        NodeState.CONNECTED,
        NodeState.SUSPECT,
        NodeState.DRAINING,
        NodeState.STATIC,
    }
)
"""States in which a node is an endpoint of what it holds."""
