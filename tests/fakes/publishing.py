"""A publisher with a real hub and observer, and proxies that take or refuse what they are sent."""

from collections.abc import Iterable, Mapping

from headrace.policy.membership import Membership
from headrace.policy.record import Record
from headrace_xds.control import Resources
from headrace_xds.counters import Counters
from headrace_xds.fleet import Fleet
from headrace_xds.hub import Connection
from headrace_xds.messages import NodeInfo, Request, Response
from headrace_xds.observer import StreamObserver
from headrace_xds.publish.kept import Kept
from headrace_xds.publish.publisher import Publisher
from headrace_xds.translate.resources import Resource
from tests.fakes.ads_recorder import RecordedHub

REASON = "no such regular expression"


class Publishing:
    """A control server as far as proxies see it."""

    def __init__(self, *, kept: Kept | None = None, canary: str = "") -> None:
        self.now_s = 1.0
        self.fleet = Fleet()
        self.kept: list[Kept] = []
        self.publisher = Publisher(
            self.fleet,
            kept=kept,
            canary=canary,
            now=lambda: self.now_s,
            wall_s=lambda: 1_000.0,
            keep=lambda: self.kept.append(self.publisher.kept()),
        )
        observer = StreamObserver(
            Membership(Record(), now_s=0),
            self.fleet,
            self.publisher,
            now=lambda: self.now_s,
            changed=lambda: None,
            counters=Counters(),
        )
        self.recorded = RecordedHub(self.publisher.channel_of, observer)
        self.publisher.attach(self.recorded.hub)
        self.proxies: list[Proxy] = []
        self._wanted: dict[tuple[str, str], dict[str, Resource]] = {}

    def publish(self, group: str, *resources: Resource, types: Iterable[str] = ()) -> None:
        """Publish these to a group: everything of their types, and nothing of ``types``."""
        by_type: dict[str, dict[str, Resource]] = {type_url: {} for type_url in types}
        for found in resources:
            by_type.setdefault(found.type_url, {})[found.name] = found
        self.configure({group: by_type})

    def add(self, group: str, found: Resource) -> None:
        """Publish one more resource, or another version of it, to a group."""
        wanted = {**self._wanted.get((group, found.type_url), {}), found.name: found}
        self.configure({group: {found.type_url: wanted}})

    def configure(self, groups: Mapping[str, Resources]) -> None:
        """Publish a whole configuration, as ``Control`` does."""
        for group, by_type in groups.items():
            for type_url, found in by_type.items():
                self._wanted[group, type_url] = dict(found)
                self.publisher.publish(group, type_url, found)
                self.fleet.published(group, type_url, found)
        self.publisher.commit()
        self.settle()

    def settle(self) -> None:
        """Let every proxy answer until nothing is under way."""
        while sum(proxy.answer() for proxy in self.proxies):
            pass


class Proxy:
    """A client that refuses the versions it is told to, and remembers what it was sent."""

    def __init__(
        self,
        world: Publishing,
        node: str,
        *types: str,
        build: str = "1.40.0",
        refuses: Iterable[Resource] = (),
    ) -> None:
        self.node = NodeInfo(node, build=build)
        self.refuses = {found.key for found in refuses}
        self.sent: list[Resource] = []
        self.has: dict[tuple[str, str], str] = {}
        self.silent = False
        self._world = world
        self._types = types
        self.connect()

    def connect(self) -> None:
        """Open a stream and say what is held."""
        connection = self._world.recorded.hub.open(lambda: None)
        assert isinstance(connection, Connection)
        self.connection = connection
        if self not in self._world.proxies:
            self._world.proxies.append(self)
        for type_url in self._types:
            claims = {
                name: version for (kind, name), version in self.has.items() if kind == type_url
            }
            self.connection.receive(
                Request(type_url, subscribe=("*",), initial_versions=claims, node=self.node)
            )
        self._world.settle()

    def close(self) -> None:
        """End the stream, and forget everything: the process ends."""
        self._world.proxies.remove(self)
        self.connection.close()
        self.has.clear()

    def answer(self) -> bool:
        """Take what is sent now, and answer it; whether there was anything."""
        if self.silent:
            return False
        before = len(self._world.recorded.sent.responses)
        self.connection.take()
        responses = self._world.recorded.sent.responses[before:]
        for response in responses:
            self._answer(response)
        return bool(responses)

    def _answer(self, response: Response) -> None:
        self.sent += response.resources
        if any(found.key in self.refuses for found in response.resources):
            self.connection.receive(Request(response.type_url, nonce=response.nonce, error=REASON))
            return
        for found in response.resources:
            self.has[found.type_url, found.name] = found.version
        for name in response.removed:
            self.has.pop((response.type_url, name), None)
        self.connection.receive(Request(response.type_url, nonce=response.nonce))

    def version(self, found: Resource) -> str | None:
        """Version held of a resource's name."""
        return self.has.get((found.type_url, found.name))
