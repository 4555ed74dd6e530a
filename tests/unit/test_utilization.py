"""Utilisation of a tensor model and its form in load reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import limits
from headrace.policy import utilization as u

MEASURED = u.Service(service_s=0.05, batch=4.0)


def used(service: u.Service = MEASURED, **changes: float) -> float:
    load: dict[str, float | None] = {"in_flight": 0, "queue": 0, "gpu_busy": None, **changes}
    return u.utilization(service, instances=1, slo_s=0.25, **load)  # type: ignore[arg-type]


def test_concurrency_at_slo_is_capacity_times_objective() -> None:
    assert u.capacity_rps(MEASURED, instances=1) == pytest.approx(80.0)
    assert u.concurrency_at_slo(MEASURED, instances=1, slo_s=0.25) == pytest.approx(20.0)
    assert u.concurrency_at_slo(MEASURED, instances=2, slo_s=0.25) == pytest.approx(40.0)


def test_a_model_slower_than_its_objective_may_still_run_one_request_an_instance() -> None:
    slow = u.Service(service_s=2.0)
    assert u.concurrency_at_slo(slow, instances=3, slo_s=0.25) == 3.0


def test_an_idle_model_reports_the_lower_bound() -> None:
    assert used() == limits.UTILIZATION_MIN


def test_in_flight_at_the_measured_concurrency_is_full() -> None:
    assert used(in_flight=20) == pytest.approx(1.0)


def test_a_long_queue_is_full_before_it_moves() -> None:
    assert used(queue=20) == pytest.approx(1.0)


def test_a_measured_wait_as_long_as_the_objective_is_full() -> None:
    waiting = u.Service(service_s=0.05, batch=4.0, wait_s=0.25)
    assert used(waiting) == pytest.approx(1.0)


def test_a_gpu_that_others_keep_busy_counts() -> None:
    assert used(gpu_busy=0.7) == pytest.approx(0.7)


def test_an_unmeasured_model_with_work_is_full() -> None:
    assert used(u.Service(), in_flight=1) == 1.0


def test_utilization_stays_in_its_bounds() -> None:
    assert used(in_flight=10_000) == limits.UTILIZATION_MAX


def test_measuring_reads_batch_service_wait_and_busy_time() -> None:
    before = u.Totals(requests=10, inferences=10, executions=10, compute_s=1.0, queue_s=0.0)
    after = u.Totals(requests=50, inferences=50, executions=20, compute_s=3.0, queue_s=0.4)
    first = u.measure(u.Service(), before, after, elapsed_s=1.0, instances=1)
    assert [first.service_s, first.batch] == pytest.approx([0.05, 4.0])
    assert 0 < first.wait_s < 0.01
    assert 0 < first.busy < 0.5
    steady = first
    for _ in range(20):
        steady = u.measure(steady, before, after, elapsed_s=1.0, instances=1)
    assert [steady.wait_s, steady.busy] == pytest.approx([0.01, 0.5], rel=1e-3)


def test_a_long_wait_is_forgotten_soon_after_the_queue_is_gone() -> None:
    waited = u.Service(service_s=0.05, batch=4.0, wait_s=2.0)
    quiet = u.measure(waited, u.Totals(), u.Totals(), elapsed_s=3.0, instances=1)
    assert used(quiet) < 0.2


def test_a_restart_of_triton_measures_nothing() -> None:
    before = u.Totals(requests=10, inferences=10, executions=10, compute_s=1.0)
    assert u.measure(MEASURED, before, u.Totals(), elapsed_s=1.0, instances=1) == MEASURED


def test_silence_forgets_the_load_and_keeps_the_speed() -> None:
    busy = u.Service(service_s=0.05, batch=4.0, wait_s=0.2, busy=0.9)
    quiet = u.measure(busy, u.Totals(), u.Totals(), elapsed_s=60.0, instances=1)
    assert (quiet.service_s, quiet.batch) == (0.05, 4.0)
    assert quiet.wait_s < 0.001
    assert quiet.busy < 0.001


def weight(node: float, line: u.Reported) -> float:
    return node * u.RPS_SCALE / line.utilization


def test_the_weight_in_envoy_is_the_rate_at_which_a_version_would_be_full() -> None:
    node, lines = u.report(
        {
            "a@1": u.Used(utilization=0.5, rps=100.0, capacity=200.0),
            "b@1": u.Used(utilization=0.25, rps=10.0, capacity=40.0),
        }
    )
    assert weight(node, lines["a@1"]) == pytest.approx(200_000.0)
    assert weight(node, lines["b@1"]) == pytest.approx(40_000.0)


def test_an_idle_node_weighs_as_much_as_its_equal_at_half_load() -> None:
    idle_node, idle = u.report({"a@1": u.Used(utilization=0.01, rps=0.0, capacity=200.0)})
    busy_node, busy = u.report({"a@1": u.Used(utilization=0.5, rps=100.0, capacity=200.0)})
    assert weight(idle_node, idle["a@1"]) == pytest.approx(weight(busy_node, busy["a@1"]))


def test_weights_come_to_rest_where_nodes_are_equally_busy() -> None:
    """Two equal nodes share 60 requests a second; one has 30 more from outside the mesh."""
    share, capacity = 0.5, 100.0
    for _ in range(60):
        rates = {"busy": 60 * share, "free": 60 * (1 - share)}
        outside = {"busy": 30.0, "free": 0.0}
        weights = {}
        for name, rps in rates.items():
            load = u.clamp((rps + outside[name]) / capacity)
            node, lines = u.report({"a@1": u.Used(utilization=load, rps=rps, capacity=capacity)})
            weights[name] = weight(node, lines["a@1"])
        wanted = weights["busy"] / sum(weights.values())
        share += 0.3 * (wanted - share)
    assert 60 * share + 30 == pytest.approx(60 * (1 - share), rel=0.05)


def test_a_node_without_versions_reports_a_rate_above_zero() -> None:
    assert u.report({}) == (u.RPS_MIN, {})


utilizations = st.floats(limits.UTILIZATION_MIN, limits.UTILIZATION_MAX)
rates = st.floats(0.0, 1e5)
any_used = st.builds(
    u.Used, utilization=utilizations, rps=rates, capacity=st.none() | st.floats(1e-3, 1e6)
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), any_used, max_size=12))
def test_every_report_is_positive_and_can_be_scaled_back(versions: dict[str, u.Used]) -> None:
    node, lines = u.report(versions)
    assert node > 0
    for name, line in lines.items():
        assert line.utilization >= limits.UTILIZATION_MIN * (1 - 1e-9)
        assert line.utilization * line.rps / node == pytest.approx(versions[name].utilization)


totals = st.builds(
    u.Totals,
    requests=st.integers(0, 10**6),
    inferences=st.integers(0, 10**6),
    executions=st.integers(0, 10**6),
    compute_s=st.floats(0, 1e6),
    queue_s=st.floats(0, 1e6),
)


@given(totals, totals, st.integers(1, 8), st.floats(0.01, 10.0), st.integers(0, 500))
def test_whatever_triton_counted_utilization_keeps_its_bounds(
    before: u.Totals, after: u.Totals, instances: int, slo_s: float, in_flight: int
) -> None:
    service = u.measure(u.Service(), before, after, elapsed_s=0.2, instances=instances)
    value = u.utilization(
        service,
        in_flight=in_flight,
        queue=in_flight // 2,
        gpu_busy=None,
        instances=instances,
        slo_s=slo_s,
    )
    assert limits.UTILIZATION_MIN <= value <= limits.UTILIZATION_MAX
