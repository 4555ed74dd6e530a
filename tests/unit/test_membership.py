"""Which nodes are endpoints: the rules one by one, on a virtual clock."""

import pytest

from headrace import limits
from headrace.policy.holding import HoldState, NodeState
from headrace.policy.membership import Membership, backoff_s
from headrace.policy.nodes import Wanted
from headrace.policy.record import NodeInfo, Record

VISION = "vision@1"


def info(name: str, pool: str = "a") -> NodeInfo:
    return NodeInfo(
        name=name,
        pool=pool,
        region="eu",
        zone="eu-1",
        address="127.0.0.1",
        http_port=1,
        grpc_port=2,
        orca_port=3,
    )


def wanted(
    *names: str, fingerprint: str = "v", pools: tuple[str, ...] = ("a",)
) -> dict[str, Wanted]:
    """Versions whose content hash is ``fingerprint`` and, from the second on, the attempt."""

    def version_at(attempt: int) -> str:
        return f"{fingerprint}{attempt or ''}"

    return {name: Wanted(frozenset(pools), fingerprint, version_at) for name in names or (VISION,)}


def fresh(record: Record | None = None, **options: float) -> Membership:
    membership = Membership(record or Record(), now_s=0, **options)
    membership.place(wanted(), (), now_s=0)
    return membership


def join(membership: Membership, *names: str, ready: bool = True) -> Membership:
    for number, name in enumerate(names, start=1):
        membership.connect(number, info(name), now_s=1)
        membership.claim(name, {}, now_s=1)
        if ready:
            membership.ack(name, VISION, "v", now_s=2)
    return membership


def holders(membership: Membership, name: str = VISION) -> list[str]:
    return [holder.info.name for holder in membership.holders().get(name, [])]


def states(membership: Membership) -> list[HoldState]:
    return [holding.state for holding in membership.nodes["n1"].holdings.values()]


def test_a_node_is_an_endpoint_once_it_acknowledged() -> None:
    membership = join(fresh(), "n1", ready=False)
    assert membership.offers("n1") == {VISION: 0}
    assert holders(membership) == []
    membership.ack("n1", VISION, "v", now_s=2)
    assert holders(membership) == ["n1"]


def test_a_refused_version_is_no_endpoint_and_keeps_the_reason() -> None:
    membership = join(fresh(), "n1", ready=False)
    membership.nack("n1", VISION, "out of memory", now_s=3)
    holding = membership.nodes["n1"].holdings[VISION]
    assert holders(membership) == []
    assert (holding.state, holding.message) == (HoldState.FAILED, "out of memory")


def test_a_refused_assignment_is_offered_again_after_its_back_off() -> None:
    membership = join(fresh(), "n1", ready=False)
    membership.nack("n1", VISION, "busy", now_s=10)
    assert not membership.advance(now_s=10 + backoff_s(0) - 0.01)
    assert membership.offers("n1") == {VISION: 0}
    assert membership.advance(now_s=10 + backoff_s(0))
    assert membership.offers("n1") == {VISION: 1}


def test_assignment_attempts_are_limited_until_an_edit() -> None:
    membership = join(fresh(), "n1", ready=False)
    now_s = 10.0
    for _ in range(limits.ASSIGNMENT_ATTEMPTS):
        membership.nack("n1", VISION, "no", now_s=now_s)
        now_s += limits.ASSIGNMENT_BACKOFF_MAX_S
        membership.advance(now_s=now_s)
    holding = membership.nodes["n1"].holdings[VISION]
    assert states(membership) == [HoldState.EXHAUSTED]
    assert holding.attempt == limits.ASSIGNMENT_ATTEMPTS - 1
    membership.place(wanted(fingerprint="edited"), (), now_s=now_s)
    assert states(membership) == [HoldState.OFFERED]
    assert membership.offers("n1") == {VISION: 0}


def test_back_off_doubles_up_to_its_limit() -> None:
    assert [backoff_s(attempt) for attempt in (0, 1, 2)] == [1, 2, 4]
    assert backoff_s(50) == limits.ASSIGNMENT_BACKOFF_MAX_S


def test_a_lost_stream_makes_a_node_suspect_and_removes_nothing() -> None:
    membership = join(fresh(), "n1")
    membership.disconnect(1, "n1", now_s=3)
    membership.advance(now_s=300)
    assert membership.nodes["n1"].state is NodeState.SUSPECT
    assert holders(membership) == ["n1"]


def test_a_node_with_a_second_stream_does_not_become_suspect() -> None:
    membership = join(fresh(), "n1")
    membership.connect(7, info("n1"), now_s=3)
    membership.disconnect(1, "n1", now_s=4)
    assert membership.nodes["n1"].state is NodeState.CONNECTED


def test_what_a_returning_node_does_not_claim_it_does_not_hold() -> None:
    membership = join(fresh(), "n1")
    membership.disconnect(1, "n1", now_s=3)
    membership.connect(2, info("n1"), now_s=4)
    assert holders(membership) == ["n1"], "not before it had its say"
    membership.claim("n1", {}, now_s=4)
    assert holders(membership) == []


def test_what_a_returning_node_claims_it_holds() -> None:
    membership = join(fresh(), "n1", ready=False)
    membership.disconnect(1, "n1", now_s=3)
    membership.connect(2, info("n1"), now_s=4)
    membership.claim("n1", {VISION: "v"}, now_s=4)
    assert holders(membership) == ["n1"]


def test_a_returning_node_serves_the_older_content_it_claims_and_is_offered_the_newer() -> None:
    membership = join(fresh(), "n1")
    membership.place(wanted(fingerprint="edited"), (), now_s=3)
    membership.nack("n1", VISION, "no such artifact", now_s=4)
    membership.disconnect(1, "n1", now_s=5)
    membership.connect(2, info("n1"), now_s=6)
    membership.claim("n1", {VISION: "v"}, now_s=6)
    assert (states(membership), holders(membership)) == ([HoldState.OFFERED], ["n1"])
    assert membership.offers("n1") == {VISION: 0}
    membership.nack("n1", VISION, "no such artifact", now_s=7)
    assert (states(membership), holders(membership)) == ([HoldState.FAILED], ["n1"])
    membership.ack("n1", VISION, "edited", now_s=8)
    assert (states(membership), holders(membership)) == ([HoldState.READY], ["n1"])


def test_a_leaving_node_drains_and_is_gone_when_its_stream_ends() -> None:
    membership = join(fresh(), "n1")
    membership.leave("n1", now_s=3)
    assert [holder.draining for holder in membership.holders()[VISION]] == [True]
    membership.disconnect(1, "n1", now_s=4)
    assert holders(membership) == []
    membership.connect(2, info("n1"), now_s=5)
    membership.claim("n1", {VISION: "v"}, now_s=5)
    assert [holder.draining for holder in membership.holders()[VISION]] == [False]


def test_a_dropped_version_is_withdrawn_until_its_removal_is_acknowledged() -> None:
    membership = join(fresh(), "n1")
    membership.place({}, (), now_s=3)
    assert membership.offers("n1") == {}
    assert holders(membership) == []
    assert membership.nodes["n1"].holdings[VISION].state is HoldState.WITHDRAWN
    membership.ack("n1", VISION, "", now_s=4)
    assert membership.nodes["n1"].holdings == {}


def test_a_version_that_comes_back_while_it_is_unloaded_is_offered_again() -> None:
    membership = join(fresh(), "n1")
    membership.place({}, (), now_s=3)
    membership.place(wanted(), (), now_s=4)
    assert membership.offers("n1") == {VISION: 1}, "not what it may still hold: it must answer"
    membership.ack("n1", VISION, "", now_s=5)
    assert membership.nodes["n1"].holdings[VISION].state is HoldState.OFFERED


def test_an_edit_keeps_nodes_serving_even_when_they_refuse_it() -> None:
    membership = join(fresh(), "n1")
    membership.place(wanted(fingerprint="edited"), (), now_s=3)
    assert (states(membership), holders(membership)) == ([HoldState.OFFERED], ["n1"])
    membership.nack("n1", VISION, "no such artifact", now_s=4)
    assert (states(membership), holders(membership)) == ([HoldState.FAILED], ["n1"])


def test_a_version_that_is_being_unloaded_does_not_serve_when_it_comes_back() -> None:
    membership = join(fresh(), "n1")
    membership.place({}, (), now_s=3)
    membership.ack("n1", VISION, "v", now_s=4)
    membership.place(wanted(), (), now_s=5)
    assert holders(membership) == []


def test_nodes_hold_only_what_is_placed_in_their_pool() -> None:
    membership = fresh()
    membership.place(wanted(pools=("b",)), (), now_s=0)
    join(membership, "n1", ready=False)
    assert membership.offers("n1") == {}


def moved_to_another_pool() -> Membership:
    membership = join(fresh(), "n1")
    membership.place(wanted(pools=("b",)), (), now_s=10)
    return membership


def test_a_node_whose_pool_is_taken_out_is_no_endpoint_and_unloads_when_gateways_know() -> None:
    membership = moved_to_another_pool()
    assert holders(membership) == []
    assert membership.offers("n1") == {VISION: 0}
    assert membership.retiring() == {VISION}
    assert not membership.advance(now_s=11)
    membership.release(VISION, now_s=12)
    assert membership.offers("n1") == {}
    assert (states(membership), membership.retiring()) == ([HoldState.WITHDRAWN], frozenset())


def test_a_node_whose_pool_is_taken_out_unloads_after_retire_s_without_gateways() -> None:
    membership = moved_to_another_pool()
    assert membership.advance(now_s=10 + limits.RETIRE_S)
    assert membership.offers("n1") == {}


def test_a_pool_that_is_put_back_before_its_nodes_unloaded_serves_at_once() -> None:
    membership = moved_to_another_pool()
    membership.place(wanted(), (), now_s=11)
    assert (states(membership), holders(membership)) == ([HoldState.READY], ["n1"])
    assert not membership.advance(now_s=10 + limits.RETIRE_S)


def test_a_node_of_a_pool_that_is_taken_out_before_it_was_ready_stops_loading_at_once() -> None:
    membership = join(fresh(), "n1", ready=False)
    membership.place(wanted(pools=("b",)), (), now_s=10)
    assert states(membership) == [HoldState.WITHDRAWN]


def test_a_restart_does_not_forget_what_is_still_to_be_let_go() -> None:
    after = Membership(moved_to_another_pool().record(), now_s=0)
    after.place(wanted(pools=("b",)), (), now_s=0)
    assert after.retiring() == {VISION}
    assert holders(after) == []
    after.connect(9, info("n1"), now_s=1)
    after.claim("n1", {VISION: "v"}, now_s=1)
    assert after.offers("n1") == {VISION: 0}


def test_static_nodes_hold_everything_at_once_and_never_register() -> None:
    membership = fresh()
    membership.place(wanted(), (info("s1"),), now_s=1)
    assert holders(membership) == ["s1"]
    assert not membership.connect(1, info("s1"), now_s=2)
    membership.place(wanted(), (), now_s=3)
    assert holders(membership) == []


# --- restart ------------------------------------------------------------------------------------


def restarted(*, back: tuple[str, ...] = ()) -> Membership:
    before = join(fresh(), "n1", "n2")
    after = fresh(before.record())
    for number, name in enumerate(back, start=10):
        after.connect(number, info(name), now_s=1)
        after.claim(name, {VISION: "v"}, now_s=1)
    return after


def test_after_a_start_endpoints_stay_unanswered_until_the_recorded_nodes_return() -> None:
    assert restarted().settle([VISION], now_s=1) == {VISION}
    assert restarted(back=("n1",)).settle([VISION], now_s=1) == {VISION}
    assert restarted(back=("n1", "n2")).settle([VISION], now_s=1) == frozenset()


def test_an_edit_while_the_server_was_down_is_offered_from_the_first_attempt() -> None:
    before = join(fresh(), "n1")
    before.place(wanted(fingerprint="refused"), (), now_s=3)
    before.nack("n1", VISION, "no", now_s=3)
    before.advance(now_s=100)
    after = Membership(before.record(), now_s=0)
    after.place(wanted(fingerprint="edited"), (), now_s=0)
    assert (states(after), holders(after)) == ([HoldState.OFFERED], ["n1"])
    assert after.offers("n1") == {VISION: 0}
    after.connect(9, info("n1"), now_s=1)
    after.claim("n1", {VISION: "v"}, now_s=1)
    assert holders(after) == ["n1"]
    assert after.settle([VISION], now_s=1) == frozenset()


def test_after_the_grace_recorded_nodes_count_as_suspect_and_stay_endpoints() -> None:
    membership = restarted(back=("n1",))
    assert membership.settle([VISION], now_s=limits.RETURN_GRACE_S) == frozenset()
    assert holders(membership) == ["n1", "n2"]


def test_what_was_answered_once_is_never_withheld_again() -> None:
    membership = restarted(back=("n1", "n2"))
    membership.settle([VISION], now_s=1)
    membership.disconnect(10, "n1", now_s=2)
    assert membership.settle([VISION], now_s=2) == frozenset()


def test_a_version_that_is_new_to_the_ledger_is_answered_at_once() -> None:
    membership = restarted()
    assert membership.settle(["ranking@1"], now_s=1) == frozenset()


def test_without_a_ledger_everything_waits_for_a_first_endpoint() -> None:
    membership = Membership(None, now_s=0)
    membership.place(wanted(), (), now_s=0)
    assert membership.settle([VISION], now_s=1) == {VISION}
    assert not membership.nodes_settled(now_s=1)
    join(membership, "n1")
    assert membership.settle([VISION], now_s=2) == frozenset()
    assert membership.nodes_settled(now_s=2)


def test_attempts_survive_a_restart_so_that_what_is_held_is_not_offered_anew() -> None:
    before = join(fresh(), "n1", ready=False)
    before.nack("n1", VISION, "no", now_s=2)
    before.advance(now_s=100)
    before.ack("n1", VISION, "v1", now_s=101)
    assert fresh(before.record()).offers("n1") == {VISION: 1}


def test_a_node_that_left_is_not_waited_for() -> None:
    before = join(fresh(), "n1")
    before.leave("n1", now_s=3)
    before.disconnect(1, "n1", now_s=4)
    assert before.record().nodes == ()


# --- forgetting ---------------------------------------------------------------------------------


def lost(count: int) -> Membership:
    membership = join(fresh(), *(f"n{number}" for number in range(count)))
    for number in range(count):
        membership.disconnect(number + 1, f"n{number}", now_s=3)
    return membership


@pytest.mark.parametrize(("known", "left"), [(1, 1), (2, 1), (3, 2), (8, 4)])
def test_at_most_half_of_a_pool_is_forgotten_at_once(known: int, left: int) -> None:
    membership = lost(known)
    membership.advance(now_s=3 + limits.FORGET_NODE_S)
    assert len(membership.nodes) == left
    membership.advance(now_s=4 + limits.FORGET_NODE_S)
    assert len(membership.nodes) == left, "nor a moment later"


def test_the_rest_is_forgotten_by_halves_one_period_later_each() -> None:
    membership = lost(8)
    counts = []
    for period in range(1, 5):
        membership.advance(now_s=4 + period * (limits.FORGET_NODE_S + 1))
        counts.append(len(membership.nodes))
    assert counts == [4, 2, 1, 1]


def test_gpu_nodes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GPU_NODES", 2)
    membership = fresh()
    assert [membership.connect(n, info(f"n{n}"), now_s=1) for n in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
