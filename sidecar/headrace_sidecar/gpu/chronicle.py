"""``Chronicle``: what this node counts and shows, made from the table of metrics."""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Final

from headrace import metrics
from headrace.assignment import Assignment
from headrace_sidecar.exposition.orca import LoadReports
from headrace_sidecar.exposition.prometheus import Exposition, Sample
from headrace_sidecar.gpu.assignments import Assignments
from headrace_sidecar.gpu.drain import Drain, Phase
from headrace_sidecar.gpu.inventory import Gpus
from headrace_sidecar.gpu.keeper import Keeper
from headrace_sidecar.gpu.lifecycle import State
from headrace_sidecar.gpu.signals import Sampler, VersionSignal
from headrace_sidecar.gpu.steps import Steps
from headrace_sidecar.gpu.tritonwatch import TritonWatch

PROGRAM: Final = "headrace-gpu"


class Chronicle:
    """Counts events, as they happen."""

    def __init__(self, exposition: Exposition) -> None:
        self._transitions = exposition.counter(metrics.TRANSITIONS)
        self._loads = exposition.histogram(metrics.LOAD_DURATION)
        self._repairs = exposition.counter(metrics.REPAIRS)
        self._requests = exposition.counter(metrics.REQUESTS)
        self._durations = exposition.histogram(metrics.REQUEST_DURATION)
        self._refusals = exposition.counter(metrics.REFUSALS)

    def entered(self, assignment: Assignment, state: State) -> None:
        """A version entered a state."""
        self._transitions.add(assignment.model, str(assignment.version), state.value)

    def loaded(self, assignment: Assignment, duration_s: float) -> None:
        """A version became ready so long after it was ordered."""
        self._loads.observe(assignment.model, str(assignment.version), seconds=duration_s)

    def repaired(self, assignment: Assignment, cause: str) -> None:
        """A ready version was lost."""
        self._repairs.add(assignment.model, str(assignment.version), cause)

    def ended(self, assignment: Assignment, outcome: str, duration_s: float) -> None:
        """A request that was let in ended."""
        labels = (assignment.model, str(assignment.version), outcome)
        self._requests.add(*labels)
        self._durations.observe(*labels, seconds=duration_s)

    def refused(self, code: str) -> None:
        """A request was refused."""
        self._refusals.add(code)


def expose(
    exposition: Exposition,
    *,
    sampler: Sampler,
    assignments: Assignments,
    triton: TritonWatch,
    steps: Steps,
    gpus: Gpus,
    load_reports: LoadReports,
    drain: Drain,
    now: Callable[[], float],
) -> None:
    """Register every gauge of the node."""

    def one(value: Callable[[], float]) -> Callable[[], Iterable[Sample]]:
        return lambda: [((), value())]

    def versions(
        value: Callable[[VersionSignal], float | None],
    ) -> Callable[[], Iterable[Sample]]:
        return lambda: [
            ((signal.model, str(signal.version)), found)
            for signal in sampler.current().versions
            if (found := value(signal)) is not None
        ]

    per_version: dict[metrics.Metric, Callable[[VersionSignal], float | None]] = {
        metrics.QUEUE_DEPTH: lambda signal: signal.queue,
        metrics.RUNNING: lambda signal: signal.running,
        metrics.UTILIZATION: lambda signal: signal.utilization,
        metrics.CONCURRENCY_AT_SLO: lambda signal: signal.concurrency,
        metrics.SERVICE_TIME: lambda signal: signal.service.service_s or None,
        metrics.QUEUE_WAIT: lambda signal: signal.service.wait_s,
        metrics.READY: lambda signal: float(signal.ready),
    }
    for metric, value in per_version.items():
        exposition.gauge(metric, versions(value))
    exposition.gauge(metrics.SIGNAL_AGE, lambda: _ages(sampler, gpus, now()))
    exposition.gauge(metrics.LOAD_REPORT_STREAMS, one(lambda: load_reports.streams))
    exposition.gauge(metrics.ASSIGNMENTS, lambda: _states(assignments.keepers))
    exposition.gauge(metrics.TRITON_UP, one(lambda: float(triton.up)))
    exposition.gauge(metrics.TRITON_INCARNATION, one(lambda: triton.incarnation))
    exposition.gauge(metrics.TRITON_RESTARTS, one(lambda: steps.restarts_total))
    exposition.gauge(
        metrics.CONTROL_CONNECTED, one(lambda: float(assignments.connected_to_control))
    )
    exposition.gauge(metrics.DRAINING, one(lambda: float(drain.phase is not Phase.SERVING)))
    _expose_gpus(exposition, gpus)
    build = (PROGRAM, version("headrace"), platform.python_version())
    exposition.gauge(metrics.BUILD_INFO, lambda: [(build, 1.0)])


def _expose_gpus(exposition: Exposition, gpus: Gpus) -> None:
    exposition.gauge(
        metrics.GPU_MEMORY, lambda: [((str(one.index),), one.memory_bytes) for one in gpus.newest]
    )
    exposition.gauge(
        metrics.GPU_MEMORY_USED,
        lambda: [((str(one.index),), one.memory_used_bytes) for one in gpus.newest],
    )
    exposition.gauge(
        metrics.GPU_BUSY,
        lambda: [((str(one.index),), one.busy) for one in gpus.newest if one.busy is not None],
    )


def _ages(sampler: Sampler, gpus: Gpus, now_s: float) -> list[Sample]:
    times = {
        "node": sampler.current().observed_s,
        "triton": sampler.current().triton_s,
        "gpu": gpus.read_s if gpus.newest else None,
    }
    return [((source,), now_s - at_s) for source, at_s in times.items() if at_s is not None]


def _states(keepers: Mapping[str, Keeper]) -> list[Sample]:
    counts = Counter(keeper.state for keeper in keepers.values())
    return [((state.value,), float(counts[state])) for state in State]
