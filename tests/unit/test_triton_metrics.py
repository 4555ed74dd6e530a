"""Triton's metrics page, and the signals that are made from it and the front door's counters."""

import asyncio

import pytest

from headrace import limits
from headrace_sidecar.gpu.rates import WINDOW_S, Rate
from headrace_sidecar.gpu.serving import Outcome, Serving
from headrace_sidecar.gpu.signals import FRESH_S, Sampler
from headrace_sidecar.gpu.tritonmetrics import parse
from tests.fakes.sidecar_assignments import identity

PAGE = """\
# HELP nv_inference_request_success Number of successful inference requests
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="m.1",version="1"} %(requests)d
nv_inference_request_success{version="1",model="other.2"} 7
nv_inference_count{model="m.1",version="1"} %(requests)d
nv_inference_exec_count{model="m.1",version="1"} %(executions)d
nv_inference_queue_duration_us{model="m.1",version="1"} 500000
nv_inference_compute_input_duration_us{model="m.1",version="1"} 0
nv_inference_compute_infer_duration_us{model="m.1",version="1"} %(compute_us)d
nv_inference_compute_output_duration_us{model="m.1",version="1"} 0
nv_inference_pending_request_count{model="m.1",version="1"} %(pending)d
nv_cpu_utilization 0.5
nv_inference_count{model="broken.1",version="1"} many
nv_inference_count{version="1"} 3
"""


def page(*, requests: int = 10, executions: int = 5, compute_us: int = 0, pending: int = 3) -> str:
    return PAGE % locals()


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def sampler(serving: Serving, clock: Clock) -> Sampler:
    return Sampler(
        lambda: serving,
        answers=serving.answers,
        change=lambda: serving.change,
        gpu_busy=lambda: None,
        metrics_address=lambda: "",
        now=clock,
    )


def test_the_page_is_read_whatever_the_order_of_labels() -> None:
    models = parse(page(compute_us=2_000_000))
    assert set(models) == {"m.1", "other.2"} or set(models) == {"m.1", "other.2", "broken.1"}
    found = models["m.1"]
    assert (found.requests, found.executions, found.pending) == (10, 5, 3)
    assert [found.compute_s, found.queue_s] == pytest.approx([2.0, 0.5])
    assert models["other.2"].requests == 7


def test_a_page_of_nonsense_says_nothing() -> None:
    assert parse("nv_inference_count{\x00} x\n}{\n") == {}


def test_signals_join_triton_s_queue_and_the_door_s_counters() -> None:
    clock, serving = Clock(), Serving(node="n1")
    served = serving.put(identity("m"))
    serving.set_ready("m", 1)
    signals = sampler(serving, clock)
    signals.take(page(requests=0, executions=0).encode())
    serving.begin(served, tier="standard", now_s=clock())
    clock.now_s += 1.0
    signals.take(page(requests=10, executions=10, compute_us=500_000).encode())
    (found,) = signals.sample().versions
    assert (found.ready, found.queue, found.running) == (True, 3, 1)
    assert found.service.service_s == pytest.approx(0.05)
    assert found.capacity == pytest.approx(20.0)
    assert signals.service_s("m@1") == pytest.approx(0.05)
    assert signals.current().triton_s == clock()


def test_a_queue_that_triton_does_not_tell_of_is_reckoned() -> None:
    clock, serving = Clock(), Serving(node="n1")
    served = serving.put(identity("m"))
    serving.set_ready("m", 1)
    signals = sampler(serving, clock)
    signals.take(page(pending=30).encode())
    for _ in range(5):
        serving.begin(served, tier="standard", now_s=clock())
    clock.now_s += FRESH_S + 0.1
    (found,) = signals.sample().versions
    assert found.queue == 4
    assert signals.current().triton_s == pytest.approx(100.0)


def test_a_frozen_page_keeps_what_work_costs_and_loses_how_busy_the_model_was() -> None:
    clock, serving = Clock(), Serving(node="n1")
    served = serving.put(identity("m"))
    serving.set_ready("m", 1)
    signals = sampler(serving, clock)
    signals.take(page(requests=0, executions=0, pending=0).encode())
    clock.now_s += 1.0
    signals.take(page(requests=20, executions=20, compute_us=1_000_000, pending=30).encode())
    (busy,) = signals.sample().versions
    assert busy.queue == 30
    assert busy.utilization > 0.3
    clock.now_s += FRESH_S + 0.1
    (frozen,) = signals.sample().versions
    assert frozen.utilization == limits.UTILIZATION_MIN
    assert (frozen.queue, frozen.service.busy, frozen.service.wait_s) == (0, 0.0, 0.0)
    assert (frozen.capacity, frozen.concurrency) == (busy.capacity, busy.concurrency)
    assert signals.current().triton_age_s == pytest.approx(FRESH_S + 0.1)
    for _ in range(5):
        serving.begin(served, tier="standard", now_s=clock())
    (loaded,) = signals.sample().versions
    assert (loaded.queue, loaded.running) == (4, 5)
    assert loaded.utilization > limits.UTILIZATION_MIN
    signals.take(page(requests=20, executions=20, compute_us=1_000_000, pending=7).encode())
    assert signals.sample().versions[0].queue == 7
    assert signals.current().triton_age_s == 0.0


def test_a_triton_that_was_never_heard_is_as_old_as_the_sampler() -> None:
    clock = Clock()
    signals = sampler(Serving(node="n1"), clock)
    clock.now_s += 5.0
    assert (signals.sample().triton_s, signals.current().triton_age_s) == (None, 5.0)


def test_a_change_of_readiness_shows_before_the_next_sample() -> None:
    clock, serving = Clock(), Serving(node="n1")
    serving.put(identity("m"))
    signals = sampler(serving, clock)
    assert not signals.sample().versions[0].ready
    serving.set_ready("m", 1)
    assert signals.current().versions[0].ready
    serving.leaving = True
    assert not signals.current().versions[0].ready


async def test_samples_are_never_further_apart_than_the_period() -> None:
    serving = Serving(node="n1")
    clock = asyncio.get_running_loop().time
    signals = Sampler(
        lambda: serving,
        answers=serving.answers,
        change=lambda: serving.change,
        gpu_busy=lambda: None,
        metrics_address=lambda: "",
        now=clock,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(signals.run())
        times = []
        for _ in range(40):
            times.append(signals.current().observed_s)
            await asyncio.sleep(0.02)
        running.cancel()
    seen = sorted(set(times))
    # Half of the period is aimed at; a busy machine may double it.
    assert len(seen) >= 0.8 / limits.SIGNAL_PERIOD_S


def test_a_rate_follows_its_counter() -> None:
    rate = Rate(total=0, now_s=0.0)
    for tick in range(1, 101):
        rate.observe(total=tick, now_s=tick * 0.1)
    assert rate.per_s == pytest.approx(10.0, rel=0.05)
    rate.observe(total=100, now_s=10.0 + 5 * WINDOW_S)
    assert rate.per_s < 0.1


def test_the_rate_counts_what_gateways_sent_and_got_answered() -> None:
    clock, serving = Clock(), Serving(node="n1")
    served = serving.put(identity("m"))
    serving.set_ready("m", 1)
    signals = sampler(serving, clock)
    signals.sample()
    ends = [(Outcome.COMPLETED, True), (Outcome.COMPLETED, False), (Outcome.REFUSED, True)]
    for outcome, stamped in ends * 20:
        serving.begin(served, tier="standard", now_s=clock())
        serving.end(served, outcome, started_s=clock(), now_s=clock(), stamped=stamped)
    clock.now_s += WINDOW_S
    assert signals.sample().versions[0].rps == pytest.approx(6.3, rel=0.05)
