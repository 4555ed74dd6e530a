"""A delta-ADS client without I/O: responses in, tasks for the owner and requests out.

A resource is *ready* at the version that the owner acknowledged last, also while the owner works
on a newer one and after it refused that: owners go on with what they have. Ready versions are
claimed as ``initial_resource_versions`` on every new stream, so the server sends nothing twice
and knows what still serves. What the owner works on, or refused, is subscribed to by name as well:
the server must answer names, so a removal that happened in between arrives too.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from headrace import limits
from headrace_sidecar.adsclient import typedstruct
from headrace_sidecar.adsclient.messages import (
    Assigned,
    NodeInfo,
    Received,
    Removed,
    Request,
    Response,
)

WILDCARD = "*"


@dataclass(slots=True)
class _Order:
    """Something the owner was asked to do and has not answered; ``version`` "" is a removal."""

    nonce: str
    name: str
    version: str
    wire_nonce: str | None


class AdsClientEngine:
    """State of one delta-ADS subscription to everything of one type."""

    def __init__(
        self, *, type_url: str, node: NodeInfo, ready: Mapping[str, str] | None = None
    ) -> None:
        self.node = node
        self.leaving = False
        self._type_url = type_url
        self._ready = dict(ready or {})
        self._orders: dict[str, _Order] = {}
        self._names_by_nonce: dict[str, str] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self._outbox: deque[Request] = deque()
        self._streams = 0
        self._connected = False

    def __repr__(self) -> str:
        """One line for operators."""
        return (
            f"AdsClientEngine({self.node.id} connected={self._connected} ready={len(self._ready)} "
            f"working={len(self._orders)} refused={len(self._refused)} leaving={self.leaving})"
        )

    @property
    def ready(self) -> Mapping[str, str]:
        """Versions that were acknowledged last and not let go since, by name."""
        return dict(self._ready)

    def connect(self) -> None:
        """Begin a new stream: its first request is the next one taken."""
        self._streams += 1
        self._connected = True
        self._outbox.clear()
        unanswered = sorted(self._orders.keys() | self._refused.keys())
        self._outbox.append(
            Request(
                type_url=self._type_url,
                subscribe=() if self.leaving else (WILDCARD, *unanswered),
                unsubscribe=(WILDCARD,) if self.leaving else (),
                initial_versions=dict(self._ready),
                node=self.node,
            )
        )

    def disconnect(self) -> None:
        """The stream ended: nonces of the wire are void, the owner's stay good."""
        self._connected = False
        self._outbox.clear()
        for order in self._orders.values():
            order.wire_nonce = None

    def receive(self, response: Response) -> tuple[Assigned | Removed, ...]:
        """Take one response; returns what the owner has to begin."""
        if response.type_url != self._type_url or not (response.resources or response.removed):
            self._answer(response.nonce, error=None)
            return ()
        if len(response.resources) + len(response.removed) > 1:
            # One nonce answers one resource; a response with more could not be half refused.
            self._answer(response.nonce, error="one resource a response is expected")
            return ()
        if response.removed:
            return self._removal(response.nonce, response.removed[0])
        return self._resource(response.nonce, response.resources[0])

    def ack(self, nonce: str) -> None:
        """The owner did what ``nonce`` asked for."""
        order = self._close(nonce)
        if order is None:
            return
        if order.version:
            self._ready[order.name] = order.version
        if order.wire_nonce is not None:
            self._answer(order.wire_nonce, error=None)

    def nack(self, nonce: str, message: str) -> None:
        """The owner gave up on what ``nonce`` asked for."""
        order = self._close(nonce)
        if order is None:
            return
        if order.version:
            self._refused[order.name] = (order.version, message)
        if order.wire_nonce is not None:
            self._answer(order.wire_nonce, error=message)

    def leave(self) -> None:
        """Tell the server, now and on every later stream, that this node is going away."""
        if self.leaving:
            return
        self.leaving = True
        if self._connected:
            self._outbox.append(Request(type_url=self._type_url, unsubscribe=(WILDCARD,)))

    def forget(self, name: str) -> None:
        """Stop claiming a resource, and stop refusing it: the next stream is offered it again."""
        self._ready.pop(name, None)
        self._refused.pop(name, None)

    def take(self) -> tuple[Request, ...]:
        """Requests to write now, in order."""
        requests = tuple(self._outbox)
        self._outbox.clear()
        return requests

    def _resource(self, wire_nonce: str, resource: Received) -> tuple[Assigned, ...]:
        name, version = resource.name, resource.version
        order = self._orders.get(name)
        if order is not None and order.version == version:
            order.wire_nonce = wire_nonce
            return ()
        if order is None and self._ready.get(name) == version:
            # A newer version that was refused is no longer wanted.
            self._refused.pop(name, None)
            self._answer(wire_nonce, error=None)
            return ()
        refused_version, refused_why = self._refused.get(name, ("", ""))
        if order is None and refused_version == version:
            self._answer(wire_nonce, error=refused_why)
            return ()
        known = self._orders.keys() | self._ready.keys()
        if name not in known and len(known) >= limits.ASSIGNMENTS_PER_NODE:
            self._answer(wire_nonce, error="this node holds as many assignments as it may")
            return ()
        decoded = typedstruct.decode(resource)
        if isinstance(decoded, str):
            self._answer(wire_nonce, error=decoded)
            return ()
        opened = self._open(name, version, wire_nonce)
        return (Assigned(opened.nonce, name, version, decoded.kind, decoded.value),)

    def _removal(self, wire_nonce: str, name: str) -> tuple[Removed, ...]:
        order = self._orders.get(name)
        if order is not None and not order.version:
            order.wire_nonce = wire_nonce
            return ()
        return (Removed(self._open(name, "", wire_nonce).nonce, name),)

    def _open(self, name: str, version: str, wire_nonce: str) -> _Order:
        replaced = self._orders.pop(name, None)
        if replaced is not None:
            del self._names_by_nonce[replaced.nonce]
        if not version:
            self._ready.pop(name, None)
        self._refused.pop(name, None)
        order = _Order(f"{self._streams}/{wire_nonce}", name, version, wire_nonce)
        self._orders[name] = order
        self._names_by_nonce[order.nonce] = name
        return order

    def _close(self, nonce: str) -> _Order | None:
        name = self._names_by_nonce.pop(nonce, None)
        return None if name is None else self._orders.pop(name)

    def _answer(self, wire_nonce: str, *, error: str | None) -> None:
        self._outbox.append(Request(type_url=self._type_url, nonce=wire_nonce, error=error))
