"""The two state machines behind membership, as tables: of a node, and of what it holds."""

import enum
from typing import Final


class NodeState(enum.Enum):
    """What is known about a GPU node's control stream."""

    RECORDED = "recorded"
    """Known from the ledger, not seen since the server started."""
    CONNECTED = "connected"
    SUSPECT = "suspect"
    """Its stream was lost. It stays an endpoint: health checks decide whether it serves."""
    DRAINING = "draining"
    """It said that it is leaving and finishes what it has."""
    LEFT = "left"
    """It left on purpose and its stream has ended."""
    FORGOTTEN = "forgotten"
    STATIC = "static"
    """Listed in the configuration; it has no control stream."""


class NodeEvent(enum.Enum):
    """What can happen to a GPU node."""

    CONNECT = "connect"
    LOSE = "lose"
    LEAVE = "leave"
    FORGET = "forget"


NODE_NEXT: Final = {
    (NodeState.RECORDED, NodeEvent.CONNECT): NodeState.CONNECTED,
    (NodeState.RECORDED, NodeEvent.FORGET): NodeState.FORGOTTEN,
    (NodeState.CONNECTED, NodeEvent.CONNECT): NodeState.CONNECTED,
    (NodeState.CONNECTED, NodeEvent.LOSE): NodeState.SUSPECT,
    (NodeState.CONNECTED, NodeEvent.LEAVE): NodeState.DRAINING,
    (NodeState.SUSPECT, NodeEvent.CONNECT): NodeState.CONNECTED,
    (NodeState.SUSPECT, NodeEvent.FORGET): NodeState.FORGOTTEN,
    (NodeState.DRAINING, NodeEvent.CONNECT): NodeState.CONNECTED,
    (NodeState.DRAINING, NodeEvent.LEAVE): NodeState.DRAINING,
    (NodeState.DRAINING, NodeEvent.LOSE): NodeState.LEFT,
    (NodeState.LEFT, NodeEvent.CONNECT): NodeState.CONNECTED,
    (NodeState.LEFT, NodeEvent.FORGET): NodeState.FORGOTTEN,
}

GONE: Final = frozenset({NodeState.RECORDED, NodeState.SUSPECT, NodeState.LEFT})
"""States of a registered node that has no control stream."""


class HoldState(enum.Enum):
    """How far a node is with what it was told to hold last.

    Whether it serves is another matter: a node goes on with the content it acknowledged while it
    loads an edited one, and after it refused that one.
    """

    OFFERED = "offered"
    """The node is fetching, loading or warming it up."""
    READY = "ready"
    """The node acknowledged it: loaded, warmed, answering."""
    FAILED = "failed"
    """The node gave up; it is offered again after a back-off."""
    EXHAUSTED = "exhausted"
    """The node gave up as often as it is asked; it waits for an edit."""
    WITHDRAWN = "withdrawn"
    """It is no longer wanted; the node is unloading it."""
    GONE = "gone"


class HoldEvent(enum.Enum):
    """What can happen to a model version on a node."""

    ACK = "ack"
    NACK = "nack"
    NACK_LAST = "nack_last"
    """The node gave up on the last attempt."""
    CLAIM = "claim"
    """The node came back and says that it holds it, ready."""
    CLAIM_OLDER = "claim_older"
    """The node came back and serves older content than it was told to hold."""
    MISSING = "missing"
    """The node came back without it."""
    RETRY = "retry"
    EDIT = "edit"
    """What is wanted has changed."""
    WITHDRAW = "withdraw"
    OFFER = "offer"
    """It is wanted again after it was withdrawn."""
    REMOVED = "removed"
    """The node acknowledged a removal."""


_O, _R, _F, _X, _W, _G = (
    HoldState.OFFERED,
    HoldState.READY,
    HoldState.FAILED,
    HoldState.EXHAUSTED,
    HoldState.WITHDRAWN,
    HoldState.GONE,
)

HOLD_NEXT: Final = {
    (_O, HoldEvent.ACK): _R,
    (_O, HoldEvent.NACK): _F,
    (_O, HoldEvent.NACK_LAST): _X,
    (_O, HoldEvent.CLAIM): _R,
    (_O, HoldEvent.CLAIM_OLDER): _O,
    (_O, HoldEvent.MISSING): _O,
    (_O, HoldEvent.EDIT): _O,
    (_O, HoldEvent.WITHDRAW): _W,
    (_O, HoldEvent.REMOVED): _O,
    (_R, HoldEvent.ACK): _R,
    (_R, HoldEvent.NACK): _F,
    (_R, HoldEvent.NACK_LAST): _X,
    (_R, HoldEvent.CLAIM): _R,
    (_R, HoldEvent.CLAIM_OLDER): _O,
    (_R, HoldEvent.MISSING): _O,
    (_R, HoldEvent.EDIT): _O,
    (_R, HoldEvent.WITHDRAW): _W,
    (_R, HoldEvent.REMOVED): _O,
    (_F, HoldEvent.RETRY): _O,
    (_F, HoldEvent.ACK): _R,
    (_F, HoldEvent.NACK): _F,
    (_F, HoldEvent.NACK_LAST): _X,
    (_F, HoldEvent.CLAIM): _R,
    # A new stream is sent everything it does not claim, so the node is asked again.
    (_F, HoldEvent.CLAIM_OLDER): _O,
    (_F, HoldEvent.MISSING): _O,
    (_F, HoldEvent.EDIT): _O,
    (_F, HoldEvent.WITHDRAW): _W,
    (_F, HoldEvent.REMOVED): _F,
    (_X, HoldEvent.ACK): _R,
    (_X, HoldEvent.NACK): _X,
    (_X, HoldEvent.NACK_LAST): _X,
    (_X, HoldEvent.CLAIM): _R,
    (_X, HoldEvent.CLAIM_OLDER): _O,
    (_X, HoldEvent.MISSING): _O,
    (_X, HoldEvent.EDIT): _O,
    (_X, HoldEvent.WITHDRAW): _W,
    (_X, HoldEvent.REMOVED): _X,
    (_W, HoldEvent.OFFER): _O,
    (_W, HoldEvent.REMOVED): _G,
    (_W, HoldEvent.MISSING): _G,
    (_W, HoldEvent.ACK): _W,
    (_W, HoldEvent.NACK): _W,
    (_W, HoldEvent.NACK_LAST): _W,
    (_W, HoldEvent.CLAIM): _W,
    (_W, HoldEvent.CLAIM_OLDER): _W,
    (_W, HoldEvent.EDIT): _W,
    (_W, HoldEvent.WITHDRAW): _W,
}
