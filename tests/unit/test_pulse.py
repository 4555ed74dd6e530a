"""When a ready version is asked for a sign of life."""

from headrace import limits
from headrace_sidecar.gpu.pulse import SLOW, Pulse, patience_s


def test_a_saturated_version_is_never_asked() -> None:
    pulse = Pulse(now_s=0.0)
    for tick in range(1, 1_000):
        now_s = tick * 0.2
        pulse.observe(in_flight=500, completed=tick // 5, now_s=now_s)
        assert not pulse.due(service_s=0.1, now_s=now_s)


def test_a_version_that_runs_and_completes_nothing_is_asked_after_the_stall() -> None:
    pulse = Pulse(now_s=0.0)
    pulse.observe(in_flight=1, completed=0, now_s=3.0)
    assert not pulse.due(service_s=0.0, now_s=3.0 + limits.STALL_S - 0.01)
    assert pulse.due(service_s=0.0, now_s=3.0 + limits.STALL_S)


def test_a_slow_version_has_more_time() -> None:
    pulse = Pulse(now_s=0.0)
    pulse.observe(in_flight=1, completed=0, now_s=0.0)
    assert not pulse.due(service_s=2.0, now_s=SLOW * 2.0 - 0.01)
    assert pulse.due(service_s=2.0, now_s=SLOW * 2.0)


def test_an_idle_version_is_asked_now_and_then() -> None:
    pulse = Pulse(now_s=0.0)
    pulse.observe(in_flight=0, completed=0, now_s=1.0)
    assert not pulse.due(service_s=0.0, now_s=limits.PROBE_PERIOD_S - 0.01)
    assert pulse.due(service_s=0.0, now_s=limits.PROBE_PERIOD_S)
    pulse.sign(limits.PROBE_PERIOD_S)
    assert not pulse.due(service_s=0.0, now_s=limits.PROBE_PERIOD_S + 1.0)


def test_the_wait_before_a_request_is_no_stall() -> None:
    pulse = Pulse(now_s=0.0)
    pulse.observe(in_flight=0, completed=7, now_s=0.0)
    pulse.observe(in_flight=1, completed=7, now_s=4.9)
    assert not pulse.due(service_s=0.0, now_s=5.0)


def test_patience_grows_with_the_time_of_a_batch() -> None:
    assert patience_s(0.0) == limits.PROBE_S
    assert patience_s(3.0) == SLOW * 3.0
