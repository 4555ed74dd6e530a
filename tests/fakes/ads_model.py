"""A model of an ADS client: what a correct client holds, and what a server may do to it."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace_xds.messages import NodeInfo, Request, Response
from headrace_xds.translate.resources import Resource, resource
from headrace_xds.typepolicy import policy_of

WILDCARD = "*"
BAD = b"bad"
"""A body that the client refuses."""


def plain(type_url: str, name: str, body: bytes) -> Resource:
    """A resource whose body nobody parses."""
    return resource(type_url, name, body)


@dataclass
class TypeState:
    """One type of a client: its subscription and what it holds."""

    wildcard: bool = False
    names: set[str] = field(default_factory=set)
    view: dict[str, str] = field(default_factory=dict)

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.names


class ModelClient:
    """Queues what it wants to tell the server; the test decides when the server hears it."""

    def __init__(self, *type_urls: str) -> None:
        self.types = {type_url: TypeState() for type_url in type_urls}
        self.to_server: deque[Request] = deque()
        self.opened: set[str] = set()
        self.node = NodeInfo("model")

    def connect(self) -> None:
        """Open a stream: what was under way is lost, what is held is claimed."""
        self.to_server.clear()
        self.opened.clear()
        for type_url, state in self.types.items():
            if state.wildcard or state.names:
                self._ask(type_url, (), ())

    def subscribe(self, type_url: str, names: Iterable[str]) -> None:
        state, added = self.types[type_url], tuple(names)
        state.names.update(set(added) - {WILDCARD})
        state.wildcard = state.wildcard or WILDCARD in added
        self._ask(type_url, added, ())

    def unsubscribe(self, type_url: str, names: Iterable[str]) -> None:
        state, gone = self.types[type_url], tuple(names)
        state.names.difference_update(gone)
        if WILDCARD in gone:
            state.wildcard = False
        if not state.wildcard:
            state.view = {name: v for name, v in state.view.items() if name in state.names}
        self._ask(type_url, (), gone)

    def receive(self, response: Response) -> tuple[str, ...]:
        """Apply a response and queue its answer; returns the names that were refused."""
        state = self.types[response.type_url]
        bad = tuple(item.name for item in response.resources if item.body == BAD)
        error = None
        if bad:
            error = "Error adding/updating cluster(s) " + ", ".join(f"{n}: no" for n in bad)
        if not bad or policy_of(response.type_url).partial:
            for item in response.resources:
                if item.name not in bad and state.wants(item.name):
                    state.view[item.name] = item.version
            for name in response.removed:
                state.view.pop(name, None)
        self.to_server.append(
            Request(type_url=response.type_url, nonce=response.nonce, error=error)
        )
        return bad

    def _ask(self, type_url: str, added: tuple[str, ...], gone: tuple[str, ...]) -> None:
        state = self.types[type_url]
        if type_url not in self.opened:
            # The first request of a stream carries the whole subscription and every claim.
            added = (*sorted(state.names), *((WILDCARD,) if state.wildcard else ()))
            first = not self.opened
            self.opened.add(type_url)
            self.to_server.append(
                Request(
                    type_url=type_url,
                    subscribe=added,
                    unsubscribe=gone,
                    initial_versions=dict(state.view),
                    node=self.node if first else None,
                )
            )
            return
        self.to_server.append(Request(type_url=type_url, subscribe=added, unsubscribe=gone))
