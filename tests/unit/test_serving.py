"""The node's table of model versions: who is let in, and what is counted."""

import asyncio
from collections.abc import Callable

import pytest

from headrace import limits
from headrace.assignment import Assignment, Batching
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu.bodies import Bodies
from headrace_sidecar.gpu.serving import Outcome, Served, Serving
from headrace_sidecar.gpu.visit import Visit


def assignment(version: int = 1, *, model: str = "m") -> Assignment:
    return Assignment(
        model=model,
        version=version,
        executor="identity",
        artifact="",
        inputs=(),
        outputs=(),
        batching=Batching(
            max_batch_size=4, max_queue_delay_s=0, max_queue_size=2, queue_timeout_s=1
        ),
    )


@pytest.fixture
def serving() -> Serving:
    serving = Serving(node="n")
    serving.put(assignment())
    serving.set_ready("m", 1)
    return serving


def refusal(serving: Serving, served: Served, tier: str = "standard") -> Refusal:
    with pytest.raises(Refused) as caught:
        serving.begin(served, tier=tier, now_s=0.0)
    return caught.value.refusal


def test_a_version_is_refused_until_it_is_ready() -> None:
    serving = Serving(node="n")
    served = serving.put(assignment())
    assert not serving.answers(served)
    assert refusal(serving, served) is Refusal.NOT_READY
    serving.set_ready("m", 1)
    serving.begin(served, tier="standard", now_s=1.0)
    assert (served.in_flight, served.refused_total, served.last_started_s) == (1, 1, 1.0)


def test_a_lost_version_is_refused_with_its_reason(serving: Serving) -> None:
    serving.set_unready("m", 1, "is being repaired")
    with pytest.raises(Refused, match="m@1 is being repaired"):
        serving.check_ready(serving.find("m", 1))


def test_a_draining_node_refuses_everything(serving: Serving) -> None:
    serving.draining = True
    assert refusal(serving, serving.find("m", 1)) is Refusal.DRAINING


@pytest.mark.parametrize(("model", "version"), [("none", None), ("none", 1), ("m", 2)])
def test_what_is_not_on_the_node_is_not_found(
    serving: Serving, model: str, version: int | None
) -> None:
    with pytest.raises(Refused) as caught:
        serving.find(model, version)
    assert caught.value.refusal is Refusal.MODEL_NOT_FOUND


def test_a_version_a_gateway_still_sends_to_may_be_elsewhere(serving: Serving) -> None:
    with pytest.raises(Refused) as caught:
        serving.find("m", 2, routed=True)
    assert (caught.value.refusal, caught.value.elsewhere) == (Refusal.NOT_READY, True)


def test_without_a_version_the_newest_ready_one_is_meant(serving: Serving) -> None:
    serving.put(assignment(3))
    serving.put(assignment(2))
    serving.set_ready("m", 2)
    assert serving.find("m", None).assignment.version == 2
    serving.set_unready("m", 1, "x")
    serving.set_unready("m", 2, "x")
    assert serving.find("m", None).assignment.version == 3


def test_a_dropped_version_is_gone_and_its_last_request_still_counts_out(serving: Serving) -> None:
    served = serving.find("m", 1)
    serving.begin(served, tier="standard", now_s=0.0)
    serving.drop("m", 1)
    assert list(serving) == []
    serving.end(served, Outcome.COMPLETED, started_s=0.0, now_s=1.0)
    assert (serving.in_flight, served.completed_total) == (0, 1)


def test_a_version_offered_again_keeps_its_counters(serving: Serving) -> None:
    served = serving.find("m", 1)
    served.completed_total = 7
    assert serving.put(assignment()) is served
    assert serving.answers(served)


@pytest.mark.parametrize(
    ("tier", "admitted"), [("critical", 10), ("standard", 9), ("sheddable", 7), ("shadow", 5)]
)
def test_a_full_version_refuses_first_what_is_worth_least(
    serving: Serving, tier: str, admitted: int
) -> None:
    served = serving.find("m", 1)
    assert served.capacity == 10
    for _ in range(admitted):
        serving.begin(served, tier=tier, now_s=0.0)
    assert refusal(serving, served, tier) is Refusal.OVERLOADED
    assert (served.in_flight, served.refused_total) == (admitted, 1)


def test_the_limit_on_requests_in_flight_per_node() -> None:
    serving = Serving(node="n")
    for version in range(1, 53):
        served = serving.put(assignment(version))
        serving.set_ready("m", version)
        for _ in range(10 if version < 52 else 2):
            serving.begin(served, tier="critical", now_s=0.0)
    assert serving.in_flight == limits.IN_FLIGHT_PER_NODE
    assert refusal(serving, serving.find("m", 52), "critical") is Refusal.OVERLOADED


@pytest.mark.parametrize(
    ("error", "counter"),
    [
        (None, "completed_total"),
        (Refused(Refusal.UPSTREAM_RESET, "x"), "failed_total"),
        (Refused(Refusal.TIMEOUT, "x"), "failed_total"),
        (ValueError(), "failed_total"),
        (Refused(Refusal.OVERLOADED, "x"), "refused_total"),
        (Refused(Refusal.CLIENT_GONE, "x"), "abandoned_total"),
        (asyncio.CancelledError(), "abandoned_total"),
    ],
)
def test_a_visit_is_counted_by_how_it_ends(
    serving: Serving, error: BaseException | None, counter: str
) -> None:
    served = serving.find("m", 1)
    times = iter([1.0, 3.0])
    visit = Visit(serving, served, tier="standard", clock=lambda: next(times))
    visit.__enter__()
    assert served.in_flight == serving.in_flight == 1
    visit.__exit__(None, error, None)
    assert served.in_flight == serving.in_flight == 0
    counters = ("completed_total", "failed_total", "refused_total", "abandoned_total")
    assert {name for name in counters if getattr(served, name)} == {counter}
    assert served.latency_s == (2.0 if error is None else None)
    assert served.last_completed_s == (3.0 if error is None else None)


def test_latency_follows_slowly(serving: Serving) -> None:
    served = serving.find("m", 1)
    for latency_s in (1.0, 2.0):
        serving.begin(served, tier="standard", now_s=0.0)
        serving.end(served, Outcome.COMPLETED, started_s=0.0, now_s=latency_s)
    assert served.latency_s == pytest.approx(1.2)


def test_each_change_of_readiness_is_announced(serving: Serving) -> None:
    changes: tuple[Callable[[], None], ...] = (
        lambda: serving.set_unready("m", 1, "x"),
        lambda: serving.set_ready("m", 1),
        lambda: serving.drop("m", 1),
        lambda: setattr(serving, "draining", True),
    )
    for change in changes:
        before = serving.change
        change()
        assert before.is_set()
        assert not serving.change.is_set()


def test_the_limit_on_bodies_held_at_once() -> None:
    bodies = Bodies(capacity_bytes=10)
    with bodies.hold() as held:
        held.add(6)
        with bodies.hold() as other, pytest.raises(Refused) as caught:
            other.add(5)
        with bodies.hold() as other:
            other.add(1)
            other.add(3)
            assert bodies.held_bytes == 10
        assert bodies.held_bytes == 6
    assert caught.value.refusal is Refusal.OVERLOADED
    assert bodies.held_bytes == 0
