"""A client of a hub that speaks either variant, over one aggregated stream or one stream a type.

It keeps what a correct client would: names it wants, what it holds, and queues of both directions.
Everything passes through real bytes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from envoy.service.discovery.v3 import discovery_pb2

from headrace_xds import inner_name
from headrace_xds.hub import Connection
from headrace_xds.messages import Rejection, Variant
from headrace_xds.translate.resources import Resource
from headrace_xds.typepolicy import policy_of
from headrace_xds.wire import decode_request, decode_sotw_request
from tests.fakes.ads_model import plain
from tests.fakes.ads_recorder import RecordedHub

WILDCARD = "*"
NODE = "n"
_REVISION_TAG = b"\xf8\xf0\x04"
"""Of field 9999, a number: no type has it, so that parsers pass it over."""


def made(type_url: str, name: str, revision: int = 1) -> Resource:
    """A resource of any type that says what it is called and nothing else."""
    inner = name.encode()
    body = b"\x0a%c%b%b%c" % (len(inner), inner, _REVISION_TAG, revision)
    return plain(type_url, name, body)


def some(type_url: str, **revisions: int) -> list[Resource]:
    """Resources of a type, each with its revision."""
    return [made(type_url, name, revision) for name, revision in revisions.items()]


def bodies(type_url: str, **revisions: int) -> dict[str, bytes]:
    """The same as a client holds them."""
    return {item.name: item.body for item in some(type_url, **revisions)}


class Way(NamedTuple):
    """How a client speaks: which variant, and whether all types share a stream."""

    variant: Variant
    aggregated: bool

    def __str__(self) -> str:
        """Name of the way among the tests."""
        return f"{self.variant.value}-{'aggregated' if self.aggregated else 'one-type'}"

    def stream_of(self, type_url: str) -> str:
        """Which stream a type is on."""
        return "" if self.aggregated else type_url

    def whole(self, type_url: str) -> bool:
        """Whether a response says everything, and deletes what it leaves out."""
        return policy_of(type_url, self.variant).whole


WAYS = tuple(Way(*one) for one in product(Variant, (True, False)))


@dataclass(frozen=True)
class Answer:
    """One response as its client reads it."""

    type_url: str
    nonce: str
    resources: Mapping[str, bytes]
    versions: Mapping[str, str]
    removed: frozenset[str] = frozenset()
    version: str = ""

    @property
    def names(self) -> set[str]:
        """Names of the resources it carries."""
        return set(self.resources)


@dataclass
class TypeState:
    """One type of a client: what it wants and what it holds."""

    wildcard: bool = False
    legacy: bool = False
    """It wants all because it named nothing."""
    names: set[str] = field(default_factory=set)
    view: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    version: str = ""
    opened: bool = False

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.names

    def listed(self) -> list[str]:
        """Names as a request that carries them all lists them."""
        return [*sorted(self.names), *([WILDCARD] if self.wildcard and not self.legacy else [])]


class Peer:
    """Queues what it tells the hub, and what the hub tells it, until somebody moves it on."""

    def __init__(self, world: RecordedHub, way: Way) -> None:
        self.world = world
        self.way = way
        self.types: dict[str, TypeState] = {}
        self.to_server: dict[str, deque[bytes]] = {}
        self.to_client: dict[str, deque[Answer]] = {}
        self.connections: dict[str, Connection] = {}
        self.refuses: Callable[[bytes], bool] = lambda _: False

    def state(self, type_url: str) -> TypeState:
        """State of a type."""
        return self.types.setdefault(type_url, TypeState())

    def bodies(self, type_url: str) -> dict[str, bytes]:
        """What the client holds of a type."""
        return self.state(type_url).view

    def ask(self, type_url: str, *names: str, without: Iterable[str] = ()) -> None:
        """Want other names; without any a first request means everything."""
        state, gone = self.state(type_url), tuple(without)
        if names or gone:
            state.legacy = False
        elif not state.opened:
            state.wildcard = state.legacy = True
        state.names |= set(names) - {WILDCARD}
        state.names -= set(gone)
        state.wildcard = (state.wildcard or WILDCARD in names) and WILDCARD not in gone
        self._forget_unwanted(state)
        self._send(type_url, self._request(type_url, names, gone))

    def narrow(self, type_url: str, *names: str) -> None:
        """Want these names and no others."""
        state = self.state(type_url)
        before = set(state.listed())
        self.ask(type_url, *(n for n in names if n not in before), without=before - set(names))

    def answer(self, answer: Answer, error: str | None = None) -> None:
        """Acknowledge a response, or refuse it."""
        type_url = answer.type_url
        self._send(type_url, self._request(type_url, nonce=answer.nonce, error=error))

    def apply(self, answer: Answer, bad: Iterable[str] = ()) -> None:
        """Take a response in; what is bad in it stays as it was."""
        state, refused = self.state(answer.type_url), set(bad)
        state.nonce = answer.nonce
        if refused and not policy_of(answer.type_url).partial:
            return
        if self.way.whole(answer.type_url):
            state.view = {n: body for n, body in state.view.items() if n in answer.names}
        for name in answer.names - refused:
            if state.wants(name):
                state.view[name] = answer.resources[name]
                state.versions[name] = answer.versions[name]
        for name in answer.removed:
            state.view.pop(name, None)
        if not refused:
            state.version = answer.version

    def receive(self, stream: str) -> Answer:
        """Read the next response of a stream, take it in, and queue its answer."""
        answer = self.to_client[stream].popleft()
        bad = sorted(name for name, body in answer.resources.items() if self.refuses(body))
        self.apply(answer, bad)
        text = "Error adding/updating cluster(s) " + ", ".join(f"{name}: no" for name in bad)
        self.answer(answer, text if bad else None)
        return answer

    def deliver(self, stream: str) -> None:
        """Let the hub hear the next request of a stream."""
        data = self.to_server[stream].popleft()
        decode = decode_request if self.way.variant is Variant.DELTA else decode_sotw_request
        refused = self.connections[stream].receive(decode(data, implied=stream))
        assert refused is None, refused

    def collect(self) -> list[Answer]:
        """Queue what the hub has to say on every stream, and return it."""
        said: list[Answer] = []
        for stream, connection in self.connections.items():
            answers = [self._read(data) for data in connection.take()]
            self.to_client[stream].extend(answers)
            said += answers
        return said

    def disconnect(self) -> None:
        """Lose every stream, and what was under way."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        self.to_server.clear()
        self.to_client.clear()
        for state in self.types.values():
            state.opened, state.nonce = False, ""

    def forget(self) -> None:
        """Hold nothing, as a client that was restarted."""
        for state in self.types.values():
            state.view.clear()
            state.version = ""

    def resume(self) -> None:
        """Open the streams again and ask for what is wanted."""
        for type_url, state in self.types.items():
            if state.wildcard or state.names:
                self._send(type_url, self._request(type_url))

    def _send(self, type_url: str, data: bytes) -> None:
        stream = self.way.stream_of(type_url)
        if stream not in self.connections:
            opened = self.world.hub.open(lambda: None, variant=self.way.variant, only=stream)
            assert not isinstance(opened, Rejection), opened
            self.connections[stream] = opened
            self.to_server[stream] = deque()
            self.to_client[stream] = deque()
        self.to_server[stream].append(data)
        self.state(type_url).opened = True

    def _request(
        self,
        type_url: str,
        added: Iterable[str] = (),
        gone: Iterable[str] = (),
        nonce: str = "",
        error: str | None = None,
    ) -> bytes:
        state = self.state(type_url)
        # A stream of one type says which by its method.
        named = type_url if self.way.aggregated else ""
        message: discovery_pb2.DiscoveryRequest | discovery_pb2.DeltaDiscoveryRequest
        if self.way.variant is Variant.SOTW:
            message = discovery_pb2.DiscoveryRequest(
                type_url=named,
                resource_names=state.listed(),
                response_nonce=state.nonce,
                version_info=state.version,
            )
        else:
            message = discovery_pb2.DeltaDiscoveryRequest(
                type_url=named,
                resource_names_subscribe=added if state.opened else state.listed(),
                resource_names_unsubscribe=gone,
                response_nonce=nonce,
            )
            if not state.opened:
                held = {name: state.versions[name] for name in state.view}
                message.initial_resource_versions.update(held)
        message.node.id = NODE
        if error is not None:
            message.error_detail.message = error
        data: bytes = message.SerializeToString()
        return data

    def _forget_unwanted(self, state: TypeState) -> None:
        state.view = {name: body for name, body in state.view.items() if state.wants(name)}

    def _read(self, data: bytes) -> Answer:
        if self.way.variant is Variant.SOTW:
            whole = discovery_pb2.DiscoveryResponse.FromString(data)
            bodies = {inner_name.read(item.value): item.value for item in whole.resources}
            assert len(bodies) == len(whole.resources), "R13: a name twice"
            versions = dict.fromkeys(bodies, whole.version_info)
            return Answer(whole.type_url, whole.nonce, bodies, versions, version=whole.version_info)
        part = discovery_pb2.DeltaDiscoveryResponse.FromString(data)
        told = [item.name for item in part.resources] + list(part.removed_resources)
        assert len(set(told)) == len(told), "R13: a name twice"
        return Answer(
            part.type_url,
            part.nonce,
            {item.name: item.resource.value for item in part.resources},
            {item.name: item.version for item in part.resources},
            frozenset(part.removed_resources),
        )


class PromptPeer(Peer):
    """The same with nothing under way: each word is heard at once, and so is what follows."""

    def publish(self, type_url: str, *resources: Resource) -> list[Answer]:
        """Replace everything of a type; what the client hears."""
        self.world.publish(NODE, type_url, *resources)
        return self.hear()

    def subscribe(self, type_url: str, *names: str) -> list[Answer]:
        """Want more names; what the client hears."""
        self.ask(type_url, *names)
        return self.hear()

    def unsubscribe(self, type_url: str, *names: str) -> list[Answer]:
        """Want these names no more; what the client hears."""
        self.ask(type_url, without=names)
        return self.hear()

    def ack(self, answer: Answer) -> list[Answer]:
        """Take a response; what the client hears next."""
        self.apply(answer)
        self.answer(answer)
        return self.hear()

    def nack(self, answer: Answer, *bad: str, error: str = "") -> list[Answer]:
        """Refuse a response for these names; what the client hears next."""
        self.apply(answer, bad)
        self.answer(answer, error or ", ".join(f"{name}: no" for name in bad))
        return self.hear()

    def reconnect(self, *, remembers: bool) -> list[Answer]:
        """Open other streams, with or without what was held; what the client hears."""
        self.disconnect()
        if not remembers:
            self.forget()
        self.resume()
        return self.hear()

    def hear(self) -> list[Answer]:
        """What the hub has to say now."""
        for stream, requests in self.to_server.items():
            while requests:
                self.deliver(stream)
        return self.collect()

    def told(self, answer: Answer, news: str, everything: str) -> bool:
        """Whether an answer carries what is new, or all where whole types repeat it.

        Names are single letters.
        """
        return answer.names == set(everything if self.way.whole(answer.type_url) else news)

    def settle(self, answers: list[Answer]) -> list[Answer]:
        """Acknowledge everything until nothing follows; all that was heard."""
        heard: list[Answer] = []
        while answers:
            heard += answers
            answers = [later for answer in answers for later in self.ack(answer)]
        return heard
