"""The real ADS client engine against the real stream engine, over the bytes of both."""

from collections import deque

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from xds.type.v3 import typed_struct_pb2

from headrace import limits, names
from headrace_sidecar.adsclient import wire as client_wire
from headrace_sidecar.adsclient.engine import AdsClientEngine
from headrace_sidecar.adsclient.messages import Assigned, NodeInfo, Removed
from headrace_xds import wire as server_wire
from headrace_xds.group import Group
from headrace_xds.messages import Acked, Claimed, Left, Nacked, Rejection
from headrace_xds.stream import AdsStream
from headrace_xds.translate.resources import Resource, resource

TYPE = names.ASSIGNMENT_TYPE_URL
BAD_ATTEMPT = 2
worlds = st.dictionaries(
    st.sampled_from([f"m@{version}" for version in range(1, 8)]), st.integers(0, BAD_ATTEMPT)
)


def assignment(name: str, attempt: int) -> Resource:
    """An assignment; the owner gives up on those of one attempt."""
    message = typed_struct_pb2.TypedStruct(type_url=names.ASSIGNMENT_KIND)
    message.value.update({"attempt": attempt})
    return resource(TYPE, name, message.SerializeToString(deterministic=True))


class AssignmentMachine(RuleBasedStateMachine):
    """One GPU node: its owner works on assignments while streams come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group()
        self.encoder = server_wire.Encoder()
        self.client = AdsClientEngine(type_url=TYPE, node=NodeInfo("gpu/a", metadata={"x": 1}))
        self.connected = False
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[bytes] = deque()
        self.work: list[Assigned | Removed] = []
        self.done: dict[str, str] = {}
        self.ledger: dict[str, str] = {}
        self.left = False
        self.stream = AdsStream(group_for=lambda _: self.group)

    @initialize(world=worlds)
    def begin(self, world: dict[str, int]) -> None:
        self.publish(world)
        self.connect()

    @rule(world=worlds)
    def publish(self, world: dict[str, int]) -> None:
        made = {name: assignment(name, attempt) for name, attempt in world.items()}
        self.stream.changed(TYPE, self.group.shelf(TYPE).replace(made))
        self.take()

    @rule()
    def disconnect(self) -> None:
        self.connected = False
        self.to_server.clear()
        self.to_client.clear()
        self.client.disconnect()

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.connected = True
        self.stream = AdsStream(group_for=lambda _: self.group)
        self.client.connect()
        self.flush()

    @precondition(lambda self: self.to_server)
    @rule()
    def server_hears(self) -> None:
        request = server_wire.decode_request(self.to_server.popleft())
        events = self.stream.receive(request)
        assert not isinstance(events, Rejection)
        for event in events:
            match event:
                case Claimed(_, versions):
                    self.ledger = dict(versions)
                case Acked(_, versions):
                    self.ledger.update(versions)
                    self.ledger = {name: held for name, held in self.ledger.items() if held}
                case Nacked(_, _, message):
                    # A node goes on with what it held before.
                    assert message == "gave up"
                case Left(_):
                    self.left = True
        self.take()

    @precondition(lambda self: self.to_client)
    @rule()
    def client_hears(self) -> None:
        for event in self.client.receive(client_wire.decode_response(self.to_client.popleft())):
            # A newer task for a name replaces the older one.
            others = [item for item in self.work if item.name != event.name]
            if isinstance(event, Removed):
                self.done.pop(event.name, None)
            elif others == self.work:
                assert self.done.get(event.name) != event.version, "handed over needlessly"
            self.work = [*others, event]
        self.flush()

    @precondition(lambda self: self.work)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.finish(self.work.pop(data.draw(st.integers(0, len(self.work) - 1))))

    @invariant()
    def the_owner_works_on_no_more_than_is_allowed(self) -> None:
        outstanding = repr(self.stream).partition("unanswered=")[2].partition(" ")[0]
        assert int(outstanding or 0) <= limits.ASSIGNMENTS_IN_FLIGHT

    def teardown(self) -> None:
        if not self.connected:
            self.connect()
        rounds = 0
        while self.to_server or self.to_client or self.work:
            rounds += 1
            assert rounds < 500, "client and server never come to rest"
            if self.to_server:
                self.server_hears()
            elif self.to_client:
                self.client_hears()
            else:
                self.finish(self.work.pop())
        wanted = self.group.shelf(TYPE).resources
        assert self.done.keys() <= wanted.keys()
        for name, item in wanted.items():
            if item.version != assignment(name, BAD_ATTEMPT).version:
                assert self.done[name] == self.ledger[name] == item.version
        assert dict(self.client.ready) == self.done
        self.client.leave()
        self.flush()
        self.server_hears()
        assert self.left

    def finish(self, item: Assigned | Removed) -> None:
        if isinstance(item, Assigned) and item.value["attempt"] == BAD_ATTEMPT:
            self.client.nack(item.nonce, "gave up")
        else:
            self.client.ack(item.nonce)
            if isinstance(item, Assigned):
                self.done[item.name] = item.version
        self.flush()

    def take(self) -> None:
        if self.connected:
            self.to_client += map(self.encoder.encode, self.stream.take(0.0))

    def flush(self) -> None:
        requests = self.client.take()
        if self.connected:
            self.to_server += map(client_wire.encode_request, requests)


AssignmentMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    # Explaining a failure traces every line, which takes minutes on Python 3.11.
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
TestAssignments = AssignmentMachine.TestCase
