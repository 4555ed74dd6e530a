"""Membership against a small model of what nodes said, with restarts at any moment."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace import limits
from headrace.policy.holding import HoldState, NodeState
from headrace.policy.membership import Membership
from headrace.policy.nodes import Wanted
from headrace.policy.record import NodeInfo

NODES = st.sampled_from(["n1", "n2", "n3", "n4"])
NAMES = st.sampled_from(["vision@1", "vision@2", "ranking@1"])


class Fleet(RuleBasedStateMachine):
    """Nodes connect, answer, vanish and come back; the server restarts; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.membership = Membership(None, now_s=0)
        self.wanted = frozenset({"vision@1"})
        self.fingerprint = "f"
        self.pool = "a"
        self.streams: dict[str, int] = {}
        self.next_stream = 1
        self.answered: set[str] = set()
        self.said: dict[tuple[str, str], bool] = {}
        self.place()

    def place(self) -> None:
        pools = frozenset({self.pool})
        wanted = {n: Wanted(pools, self.fingerprint, lambda _: "v") for n in self.wanted}
        self.membership.place(wanted, (), now_s=self.now_s)

    @rule(name=NODES, claims=st.booleans())
    def connect(self, name: str, claims: bool) -> None:
        if name in self.streams:
            self.disconnect_now(name)
        info = NodeInfo(
            name=name,
            pool="a",
            region="eu",
            zone="z",
            address="127.0.0.1",
            http_port=1,
            grpc_port=2,
            orca_port=3,
        )
        self.streams[name] = self.next_stream
        assert self.membership.connect(self.next_stream, info, now_s=self.now_s)
        self.next_stream += 1
        held = [n for (node, n), ready in self.said.items() if node == name and ready and claims]
        self.membership.claim(name, dict.fromkeys(held, "v"), now_s=self.now_s)
        for node, assignment in list(self.said):
            if node == name:
                self.said[node, assignment] = assignment in held

    @rule(name=NODES, assignment=NAMES, answer=st.sampled_from(["ack", "nack", "removed"]))
    def answer(self, name: str, assignment: str, answer: str) -> None:
        if name not in self.streams:
            return
        if answer == "nack":
            self.membership.nack(name, assignment, "no", now_s=self.now_s)
        else:
            version = "v" if answer == "ack" else ""
            self.membership.ack(name, assignment, version, now_s=self.now_s)
        # A refusal says nothing about what the node held before.
        if answer != "nack":
            self.said[name, assignment] = answer == "ack" and (
                assignment in self.membership.nodes[name].holdings
            )

    @rule(name=NODES)
    def leave(self, name: str) -> None:
        if name in self.streams:
            self.membership.leave(name, now_s=self.now_s)

    @rule(name=NODES)
    def disconnect(self, name: str) -> None:
        if name in self.streams:
            self.disconnect_now(name)

    def disconnect_now(self, name: str) -> None:
        before = self.serving()
        draining = self.membership.nodes[name].state is NodeState.DRAINING
        self.membership.disconnect(self.streams.pop(name), name, now_s=self.now_s)
        if not draining:
            assert self.serving() == before, "a lost stream removes nothing"

    @rule(wanted=st.frozensets(NAMES), fingerprint=st.sampled_from("fg"))
    def edit(self, wanted: frozenset[str], fingerprint: str) -> None:
        before = self.serving()
        stays = self.wanted & wanted
        self.wanted, self.fingerprint = wanted, fingerprint
        self.place()
        assert [pair for pair in before if pair[0] in stays] == self.serving()

    @rule(pool=st.sampled_from("ab"))
    def move(self, pool: str) -> None:
        """All nodes are in pool a; what moves to b must not unload before gateways know."""
        before, self.pool = self.serving(), pool
        self.place()
        if pool == "b":
            assert self.serving() == []
            assert all(name in self.membership.offers(node) for name, node in before)

    @rule(name=NAMES)
    def gateways_know(self, name: str) -> None:
        self.membership.release(name, now_s=self.now_s)
        assert name not in self.membership.retiring()

    @rule(seconds=st.sampled_from([1.0, 40.0, limits.FORGET_NODE_S]))
    def wait(self, seconds: float) -> None:
        before = len(self.membership.nodes)
        left = sum(1 for node in self.membership.nodes.values() if node.state is NodeState.LEFT)
        self.now_s += seconds
        self.membership.advance(now_s=self.now_s)
        assert len(self.membership.nodes) >= (before - left) - (before - left) // 2

    @precondition(lambda self: bool(self.membership.nodes))
    @rule()
    def restart(self) -> None:
        record = self.membership.record()
        held = {held.name for node in record.nodes for held in node.held} & self.wanted
        held = held if self.pool == "a" else set()
        self.streams.clear()
        self.membership = Membership(record, now_s=self.now_s)
        self.place()
        withheld = self.membership.settle(self.wanted, now_s=self.now_s)
        for name in held - withheld:
            assert self.membership.holders().get(name, []), (
                "an endpoint set was emptied by a restart"
            )

    @invariant()
    def endpoints_said_that_they_are_ready(self) -> None:
        for name in self.wanted:
            for holder in self.membership.holders().get(name, []):
                assert self.said.get((holder.info.name, name))

    @invariant()
    def attempts_stay_within_their_limit(self) -> None:
        for node in self.membership.nodes.values():
            for holding in node.holdings.values():
                assert holding.attempt < limits.ASSIGNMENT_ATTEMPTS
                assert holding.state is not HoldState.GONE

    @invariant()
    def nodes_are_offered_exactly_what_is_wanted(self) -> None:
        for name in self.membership.nodes:
            offered = self.membership.offers(name).keys()
            assert offered == (self.wanted if self.pool == "a" else offered & self.retiring(name))

    def retiring(self, node: str) -> set[str]:
        holdings = self.membership.nodes[node].holdings.items()
        return {name for name, holding in holdings if holding.retires_at_s is not None}

    def serving(self) -> list[tuple[str, str]]:
        return [
            (name, holder.info.name)
            for name in sorted(self.wanted)
            for holder in self.membership.holders().get(name, [])
        ]


Fleet.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFleet = Fleet.TestCase
