"""The ADS stream engine against a model client under everything that may happen to a stream."""

from collections import deque

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace_xds.group import Group
from headrace_xds.messages import Acked, Nacked, Rejection, Request, Response
from headrace_xds.stream import AdsStream
from headrace_xds.translate.resources import ENDPOINTS, LISTENER
from headrace_xds.typepolicy import policy_of
from tests.fakes.ads_model import BAD, WILDCARD, ModelClient, plain

TYPES = (LISTENER, ENDPOINTS)
NAMES = tuple("abcde")
BODIES = (b"1", b"2", BAD)
worlds = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(BODIES))
types = st.sampled_from(TYPES)
some_names = st.sets(st.sampled_from(NAMES), min_size=1, max_size=3)
names_or_all = st.sets(st.sampled_from((*NAMES, WILDCARD)), min_size=1, max_size=3)


class StreamMachine(RuleBasedStateMachine):
    """One client, many streams, one group; messages of both directions arrive late, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group()
        self.client = ModelClient(*TYPES)
        self.to_client: deque[Response] = deque()
        self.stream = AdsStream(group_for=lambda _: self.group)
        self.now_s = 0.0
        self.nonces: set[str] = set()
        # What the server knows the client to hold, or to have refused, on this stream.
        self.settled: dict[tuple[str, str], str] = {}
        self.owed: set[tuple[str, str]] = set()
        self.refused: set[tuple[str, str, str]] = set()
        self.waiting: dict[str, Response] = {}

    @initialize(listeners=worlds, endpoints=worlds)
    def begin(self, listeners: dict[str, bytes], endpoints: dict[str, bytes]) -> None:
        self.publish(LISTENER, listeners)
        self.publish(ENDPOINTS, endpoints)

    @rule(type_url=types, world=worlds)
    def publish(self, type_url: str, world: dict[str, bytes]) -> None:
        resources = {name: plain(type_url, name, body) for name, body in world.items()}
        self.stream.changed(type_url, self.group.shelf(type_url).replace(resources))
        self.take()

    @rule(type_url=types, names=st.sets(st.sampled_from(NAMES)))
    def withhold(self, type_url: str, names: set[str]) -> None:
        self.group.shelf(type_url).withheld = frozenset(names)
        self.take()

    @rule(type_url=types, names=names_or_all)
    def subscribe(self, type_url: str, names: set[str]) -> None:
        self.client.subscribe(type_url, sorted(names))

    @rule(type_url=types, names=names_or_all)
    def unsubscribe(self, type_url: str, names: set[str]) -> None:
        self.client.unsubscribe(type_url, sorted(names))

    @rule()
    def reconnect(self) -> None:
        self.stream = AdsStream(group_for=lambda _: self.group)
        for container in (
            self.to_client,
            self.nonces,
            self.settled,
            self.owed,
            self.refused,
            self.waiting,
        ):
            container.clear()
        self.client.connect()

    @precondition(lambda self: self.client.to_server)
    @rule()
    def server_hears(self) -> None:
        request = self.client.to_server.popleft()
        first = request.type_url not in self.stream.asked
        events = self.stream.receive(request)
        assert not isinstance(events, Rejection)
        self.note_claims(request, first=first)
        for name in (*request.subscribe, *request.unsubscribe):
            trusted = first and policy_of(request.type_url).trusts_claims
            if not (trusted and name in request.initial_versions):
                self.owe(request.type_url, name)
        answered = self.waiting.pop(request.nonce, None)
        if answered is not None and request.error is not None:
            # What was refused along with others has not arrived: it is owed as before.
            self.owed |= {(request.type_url, name) for name in _versions(answered)}
        for event in events:
            if isinstance(event, Acked):
                for name, version in event.versions.items():
                    self.settled[event.type_url, name] = version
            if isinstance(event, Nacked) and answered is not None:
                assert event.versions.items() <= _versions(answered).items()
                self.refused |= {(event.type_url, *item) for item in event.versions.items()}
        self.take()

    @precondition(lambda self: self.to_client)
    @rule()
    def client_hears(self) -> None:
        self.client.receive(self.to_client.popleft())

    @invariant()
    def at_most_one_response_of_a_type_is_unanswered(self) -> None:
        for type_url in TYPES:
            unanswered = [r for r in self.waiting.values() if r.type_url == type_url]
            assert len(unanswered) <= policy_of(type_url).max_in_flight

    def teardown(self) -> None:
        for type_url in TYPES:
            self.group.shelf(type_url).withheld = frozenset()
        self.take()
        rounds = 0
        while self.client.to_server or self.to_client:
            rounds += 1
            assert rounds < 500, "client and server never come to rest"
            if self.client.to_server:
                self.server_hears()
            if self.to_client:
                self.client_hears()
            self.at_most_one_response_of_a_type_is_unanswered()
        for type_url in TYPES:
            self.check_view(type_url)

    def check_view(self, type_url: str) -> None:
        """At rest the client holds the world, minus what it does not want or refused."""
        state, shelf = self.client.types[type_url], self.group.shelf(type_url)
        for name in NAMES:
            resource = shelf.resources.get(name)
            if not state.wants(name) or resource is None:
                assert name not in state.view
            elif resource.body != BAD:
                assert state.view.get(name) == resource.version

    def note_claims(self, request: Request, *, first: bool) -> None:
        if first and policy_of(request.type_url).trusts_claims:
            for name, version in request.initial_versions.items():
                self.settled[request.type_url, name] = version

    def owe(self, type_url: str, name: str) -> None:
        """The client spoke of a name: it must be answered, whatever was settled (R6, R10)."""
        self.owed |= {(type_url, n) for n in NAMES if name in (n, WILDCARD)}

    def take(self) -> None:
        for response in self.stream.take(self.now_s):
            self.check(response)
            self.waiting[response.nonce] = response
            self.to_client.append(response)

    def check(self, response: Response) -> None:
        type_url = response.type_url
        names = [*(item.name for item in response.resources), *response.removed]
        assert names, "an empty response tells nothing"
        assert len(set(names)) == len(names), "R13: a name twice"
        assert response.nonce not in self.nonces, "R5: a nonce twice"
        assert not self.group.shelf(type_url).withheld.intersection(names)
        self.nonces.add(response.nonce)
        for name, version in _versions(response).items():
            if (type_url, name) not in self.owed:
                assert self.settled.get((type_url, name)) != version, f"{name} sent needlessly"
            assert (type_url, name, version) not in self.refused, "R3: sent after a NACK"
            self.owed.discard((type_url, name))


def _versions(response: Response) -> dict[str, str]:
    """What a response says of each name; "" is a removal."""
    told = {item.name: item.version for item in response.resources}
    return told | dict.fromkeys(response.removed, "")


StreamMachine.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    # Explaining a failure traces every line, which takes minutes on Python 3.11.
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
TestStream = StreamMachine.TestCase
