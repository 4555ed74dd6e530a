"""The engine against a model client in both variants, aggregated and not, through real bytes.

Everything that may happen to a client happens in any order: messages of both directions arrive
late, names come and go, resources are refused, streams break with or without what was held. At
rest the client holds what is published, but for what it refused. A failure is shrunk, and kept by
Hypothesis in its database to be tried first the next time.
"""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headrace import limits
from headrace_xds.messages import Variant
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from tests.fakes.ads_peer import NODE, WAYS, WILDCARD, Peer, Way, made
from tests.fakes.ads_recorder import RecordedHub

TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTES)
NAMES = tuple("abc")
BAD = 9
STEPS = 100
ROUNDS = 1_000
"""Messages of one direction within which a client and a server must come to rest."""
picks = st.integers(0, len(TYPES) - 1)
"""Which of the types of a run; runs of fewer types meet in more ways."""
names = st.sets(st.sampled_from(NAMES), min_size=1, max_size=3)
worlds = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((1, 2, BAD)))


def is_bad(body: bytes) -> bool:
    return body[-1] == BAD


class BothVariants(RuleBasedStateMachine):
    """One client of one hub."""

    def __init__(self) -> None:
        super().__init__()
        self.world = RecordedHub()
        self.now_s = 0.0
        self.world.hub.now = lambda: self.now_s
        self.peer = Peer(self.world, WAYS[0])
        self.types: list[str] = list(TYPES)

    @initialize(
        way=st.sampled_from(WAYS),
        chosen=st.sets(st.sampled_from(TYPES), min_size=1, max_size=len(TYPES)),
        given=st.tuples(*[worlds] * len(TYPES)),
    )
    def begin(self, way: Way, chosen: set[str], given: tuple[dict[str, int], ...]) -> None:
        self.peer = Peer(self.world, way)
        self.peer.refuses = is_bad
        self.types = [type_url for type_url in TYPES if type_url in chosen]
        for pick, world in enumerate(given):
            self.publish(pick, world)

    @rule(pick=picks, world=worlds)
    def publish(self, pick: int, world: dict[str, int]) -> None:
        type_url = self.type_at(pick)
        made_of = [made(type_url, name, revision) for name, revision in world.items()]
        self.world.publish(NODE, type_url, *made_of)
        self.collect()

    @rule(pick=picks, withheld=st.sets(st.sampled_from(NAMES), max_size=2))
    def withhold(self, pick: int, withheld: set[str]) -> None:
        self.world.hub.withhold(NODE, self.type_at(pick), frozenset(withheld))
        self.collect()

    @rule(pick=picks, wanted=names)
    def ask_by_name(self, pick: int, wanted: set[str]) -> None:
        self.peer.ask(self.type_at(pick), *sorted(wanted))

    @rule(pick=picks)
    def ask_for_everything(self, pick: int) -> None:
        self.peer.ask(self.type_at(pick), WILDCARD)

    @rule(pick=picks, dropped=names)
    def drop_names(self, pick: int, dropped: set[str]) -> None:
        self.peer.ask(self.type_at(pick), without=sorted(dropped))

    @rule(pick=picks)
    def drop_everything(self, pick: int) -> None:
        self.peer.ask(self.type_at(pick), without=(WILDCARD,))

    @precondition(lambda self: self.peer.way.variant is Variant.DELTA)
    @rule(pick=picks, forgotten=names)
    def forget_and_ask_again(self, pick: int, forgotten: set[str]) -> None:
        type_url = self.type_at(pick)
        for name in forgotten:
            self.peer.state(type_url).view.pop(name, None)
        self.peer.ask(type_url, *sorted(forgotten))

    @rule()
    def exchange(self) -> None:
        """Deliver everything that is under way, and what follows from it."""
        self.come_to_rest()

    @rule(remembers=st.booleans())
    def reconnect(self, *, remembers: bool) -> None:
        self.peer.disconnect()
        if not remembers:
            self.peer.forget()
        self.peer.resume()

    @precondition(lambda self: any(self.peer.to_server.values()))
    @rule(data=st.data())
    def server_hears(self, data: st.DataObject) -> None:
        waiting = sorted(stream for stream, found in self.peer.to_server.items() if found)
        self.peer.deliver(data.draw(st.sampled_from(waiting)))
        self.collect()

    @precondition(lambda self: any(self.peer.to_client.values()))
    @rule(data=st.data())
    def client_hears(self, data: st.DataObject) -> None:
        waiting = sorted(stream for stream, found in self.peer.to_client.items() if found)
        self.peer.receive(data.draw(st.sampled_from(waiting)))

    @rule()
    def time_passes(self) -> None:
        self.now_s += limits.CLAIM_S
        self.collect()

    def type_at(self, pick: int) -> str:
        return self.types[pick % len(self.types)]

    def collect(self) -> None:
        self.peer.collect()

    @invariant()
    def one_response_of_a_type_is_unanswered(self) -> None:
        for connection in self.peer.connections.values():
            for type_url in TYPES:
                subscription = connection.stream.subscription(type_url)
                assert subscription is None or len(subscription.outstanding) <= 1

    def teardown(self) -> None:
        for type_url in TYPES:
            self.world.hub.withhold(NODE, type_url, frozenset())
        for _ in range(3):
            self.come_to_rest()
            # What waited for something that will not come goes without it.
            self.now_s += limits.GATE_S
            self.collect()
        self.come_to_rest()
        for type_url in TYPES:
            self.check(type_url)

    def come_to_rest(self) -> None:
        for _ in range(ROUNDS):
            self.collect()
            for stream, requests in self.peer.to_server.items():
                if requests:
                    self.peer.deliver(stream)
            self.collect()
            busy = [stream for stream, found in self.peer.to_client.items() if found]
            for stream in busy:
                self.peer.receive(stream)
            if not busy and not any(self.peer.to_server.values()):
                return
        raise AssertionError("client and server never come to rest")

    def check(self, type_url: str) -> None:
        state = self.peer.state(type_url)
        if not state.opened:
            return
        published = self.published(type_url)
        for name in NAMES:
            body = published.get(name)
            if not state.wants(name):
                assert name not in state.view
            elif body is None:
                assert name not in state.view or self.may_stay(type_url, name)
            elif not is_bad(body):
                assert state.view.get(name) == body, (type_url, name)

    def published(self, type_url: str) -> dict[str, bytes]:
        shelf = self.world.hub._group(NODE).shelf(type_url)
        return {name: found.body for name, found in shelf.resources.items()}

    def may_stay(self, type_url: str, name: str) -> bool:
        """Whether a client may keep what is not published any more."""
        if self.peer.way.variant is Variant.SOTW and not self.peer.way.whole(type_url):
            return True
        view = {kind: self.peer.state(kind).view for kind in TYPES}
        if type_url == ENDPOINTS:
            # Hosts of a live cluster are never taken away.
            return name in view[CLUSTER] or name in self.published(CLUSTER)
        # Clusters stay while the client has routes that the server has not seen.
        unseen = any(view[ROUTES].get(n) != b for n, b in self.published(ROUTES).items())
        return type_url == CLUSTER and (
            unseen or bool(view[ROUTES].keys() - self.published(ROUTES).keys())
        )


TestBothVariants = BothVariants.TestCase
TestBothVariants.settings = settings(
    max_examples=300,
    stateful_step_count=STEPS,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink),
)
