"""What is published to whom: groups of proxies, their streams, and who is told what they said.

The hub does no I/O. One event loop owns it: every method returns at once, and a stream that has
something to send is woken through the callback it was opened with.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace import limits
from headrace_xds import inner_name
from headrace_xds.group import Group
from headrace_xds.messages import (
    Acked,
    Claimed,
    Event,
    Left,
    Nacked,
    NodeInfo,
    Rejection,
    Request,
    SotwRequest,
    Variant,
)
from headrace_xds.sotw import SotwReader
from headrace_xds.stream import AdsStream
from headrace_xds.translate.resources import Resource
from headrace_xds.wire import Encoder


class Observer(Protocol):
    """Who is told what clients say. Called on the event loop; must not block."""

    def connected(self, stream_id: int, node: NodeInfo) -> None:
        """A stream said who it is; one node may have several streams for a moment."""

    def disconnected(self, stream_id: int, node: NodeInfo) -> None:
        """A stream that was connected ended."""

    def claimed(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        """What a client holds as its stream begins; always called, also with nothing."""

    def acked(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        """A client holds these versions now, by name; "" when it let go of the resource."""

    def nacked(
        self, node: NodeInfo, type_url: str, versions: Mapping[str, str], message: str
    ) -> None:
        """A client refused these versions, by name; they are not sent again on that stream."""

    def leaving(self, node: NodeInfo, type_url: str) -> None:
        """A client unsubscribed from ``*``: a GPU node that drains."""

    def held_back(self, node: NodeInfo, missing: Mapping[str, frozenset[str]]) -> None:
        """Routes wait for clusters that the client lacks; all that wait now, at every change."""


class Connection:
    """One stream of the hub, for the adapter that reads and writes it."""

    def __init__(
        self, hub: "Hub", stream_id: int, wake: Callable[[], None], variant: Variant, only: str
    ) -> None:
        self.stream_id = stream_id
        self.stream = AdsStream(group_for=self._join, variant=variant, only=only)
        self.wake = wake
        self._sotw = SotwReader()
        self.group = ""
        self._hub = hub
        self._held_back: Mapping[str, frozenset[str]] = {}

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Connection({self.stream_id} group={self.group!r} {self.stream!r})"

    def receive(self, request: Request | SotwRequest) -> Rejection | None:
        """Take one request; a rejection ends the stream."""
        if isinstance(request, SotwRequest):
            read = self._sotw.read(request, self.stream.subscription(request.type_url))
            if read is None:
                return None
            request = read
        events = self.stream.receive(request)
        if isinstance(events, Rejection):
            return events
        self._hub.report(self.stream.node, events)
        self.wake()
        return None

    def take(self) -> list[bytes]:
        """Encoded responses to write now, in order."""
        responses = self.stream.take(self._hub.now())
        held_back = self.stream.held_back
        if held_back != self._held_back:
            self._held_back = held_back
            self._hub.report_held_back(self.stream.node, held_back)
        return [self._hub.encoder.encode(response) for response in responses]

    def due_in_s(self) -> float | None:
        """Seconds after which ``take`` should be tried again though nobody woke the stream."""
        now_s = self._hub.now()
        deadline_s = self.stream.deadline_s(now_s)
        return None if deadline_s is None else max(0.0, deadline_s - now_s)

    def close(self) -> None:
        """The stream ended."""
        self._hub.closed(self)

    def _join(self, node: NodeInfo) -> Group:
        return self._hub.join(self, node)


class Hub:
    """Every group, every stream."""

    def __init__(
        self,
        *,
        observer: Observer,
        group_of: Callable[[NodeInfo], str],
        now: Callable[[], float],
    ) -> None:
        self.now = now
        self.encoder = Encoder()
        self._observer = observer
        self._group_of = group_of
        self._groups: dict[str, Group] = {}
        self._members: dict[str, dict[int, Connection]] = {}
        self._connections: dict[int, Connection] = {}
        self._ids = itertools.count(1)
        self._serving = False

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Hub(groups={len(self._groups)} streams={len(self._connections)} {self.encoder!r})"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Streams that are open."""
        return tuple(self._connections.values())

    def begin(self) -> None:
        """Take streams from now on, even if their groups are not published to yet."""
        self._serving = True

    def publish(self, group: str, type_url: str, resources: Mapping[str, Resource]) -> None:
        """Replace everything of a type for a group; equal versions change nothing.

        Until a type is published for a group, requests for it wait. Raises ``ValueError`` when a
        resource is filed under a name that it does not carry inside (R13).
        """
        self.begin()
        shelf = self._group(group).shelf(type_url)
        first = not shelf.published
        before = shelf.resources
        for name, resource in resources.items():
            old = before.get(name)
            if old is None or old.version != resource.version:
                inner_name.check(name, resource)
        changed = shelf.replace(resources)
        if changed or first:
            self._wake(group, type_url, changed)

    def withhold(self, group: str, type_url: str, withheld: frozenset[str]) -> None:
        """Answer these names of a group, and only these, neither with a resource nor as absent."""
        self._group(group).shelf(type_url).withheld = withheld
        self._wake(group, type_url, frozenset())

    def spare(self, group: str, type_url: str, versions: Mapping[str, str]) -> None:
        """Let clients that have these versions, by name, keep them whatever is published."""
        self._group(group).shelf(type_url).spared = versions

    def forgive(self, group: str, type_url: str, name: str) -> None:
        """Offer a name again to those who refused it, at the version that is published."""
        for connection in self._members.get(group, {}).values():
            subscription = connection.stream.subscription(type_url)
            if subscription is not None:
                subscription.forgive(name)
                connection.wake()

    def drop_group(self, group: str) -> bool:
        """Forget a group that has no streams; one with streams stays, which is False."""
        if self._members.get(group):
            return False
        self._groups.pop(group, None)
        self._members.pop(group, None)
        return True

    def open(
        self, wake: Callable[[], None], *, variant: Variant = Variant.DELTA, only: str = ""
    ) -> Connection | Rejection:
        """Begin a stream; ``wake`` is called whenever it may have something to send.

        With ``only`` it is for one type; without, it is aggregated.
        """
        if not self._serving:
            return Rejection("UNAVAILABLE", "no configuration is loaded yet; try again")
        if len(self._connections) >= limits.STREAMS:
            return Rejection("RESOURCE_EXHAUSTED", f"{limits.STREAMS} streams are open already")
        connection = Connection(self, next(self._ids), wake, variant, only)
        self._connections[connection.stream_id] = connection
        return connection

    def join(self, connection: Connection, node: NodeInfo) -> Group:
        """A stream said who it is: find its group and tell the observer."""
        connection.group = self._group_of(node)
        group = self._group(connection.group)
        self._members.setdefault(connection.group, {})[connection.stream_id] = connection
        self._observer.connected(connection.stream_id, node)
        return group

    def closed(self, connection: Connection) -> None:
        """A stream ended; a second time means nothing."""
        if self._connections.pop(connection.stream_id, None) is None:
            return
        node = connection.stream.node
        if node is not None:
            del self._members[connection.group][connection.stream_id]
            if not self._group(connection.group).published:
                # Clients choose their ids: one that nobody knows must leave nothing behind.
                self.drop_group(connection.group)
            self._observer.disconnected(connection.stream_id, node)

    def report(self, node: NodeInfo | None, events: tuple[Event, ...]) -> None:
        """Tell the observer what a client said."""
        if node is None:
            return
        for event in events:
            match event:
                case Acked(type_url, versions):
                    self._observer.acked(node, type_url, versions)
                case Nacked(type_url, versions, message):
                    self._observer.nacked(node, type_url, versions, message)
                case Claimed(type_url, versions):
                    self._observer.claimed(node, type_url, versions)
                case Left(type_url):
                    self._observer.leaving(node, type_url)

    def report_held_back(
        self, node: NodeInfo | None, missing: Mapping[str, frozenset[str]]
    ) -> None:
        """Tell the observer which routes of a client wait for clusters."""
        if node is not None:
            self._observer.held_back(node, missing)

    def _group(self, name: str) -> Group:
        return self._groups.setdefault(name, Group())

    def _wake(self, group: str, type_url: str, names: frozenset[str]) -> None:
        for connection in self._members.get(group, {}).values():
            connection.stream.changed(type_url, names)
            connection.wake()
