"""How busy a tensor model is, and how a node says so to Envoy.

*Capacity* follows from Little's law, L = λW (J. D. C. Little, "A Proof for the Queuing Formula
L = λW", Operations Research 9(3), 1961): instances that each take ``service_s`` for a batch of
``batch`` requests complete at most μ = instances x batch / service_s requests a second, so at
most μ x SLO may be inside before the last of them exceeds the objective. Batch and service time
are moving averages of what Triton counted. A lightly loaded model forms small batches, so μ is
then a lower bound: a quiet node looks a little busier than it is, never freer.

*Utilisation* is the largest of in-flight / concurrency at SLO, queue wait / SLO, and busy time:
of the instances, as Triton counts it, and of the GPU where there is one. Without the busy time
every lightly loaded node would sit at the lower bound, and weights would follow traffic instead
of speed.

*Envoy's unit.* Client-side weighted round robin gives a host the weight rps_fractional / u with a
node-wide rps_fractional. Reporting u = utilisation x rps_node / rps_version makes that weight
rps_version / utilisation: the rate at which the version would be full. Rates count only what
gateways sent: with load from elsewhere in the utilisation alone, weights come to rest where nodes
are equally busy, whoever keeps them so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.limits import UTILIZATION_MAX, UTILIZATION_MIN

RPS_SCALE: Final = 1_000.0
"""Envoy cuts weights to integers, so every node reports requests per second a thousandfold."""
RPS_MIN: Final = 0.01
"""Lowest rate that is reported: Envoy ignores a report of 0."""
AVERAGE_WINDOW_S: Final = 2.0
"""Time constant of the moving averages of service time, batch and busy time."""
WAIT_WINDOW_S: Final = 0.7
"""Time constant of the queue wait: it can be many objectives long, and must be forgotten soon
after the queue is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What running one model version costs, as measured; ``service_s`` 0 is not measured yet."""

    service_s: float = 0.0
    batch: float = 1.0
    wait_s: float = 0.0
    busy: float = 0.0
    """Part of the time in which the instances computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters of Triton's that only rise; seconds are summed over requests."""

    requests: float = 0.0
    inferences: float = 0.0
    executions: float = 0.0
    compute_s: float = 0.0
    queue_s: float = 0.0


def measure(
    service: Service,
    before: Totals,
    after: Totals,
    *,
    elapsed_s: float,
    instances: int,
) -> Service:
    """Fold what happened between two readings into the moving averages.

    Counters that fell, because Triton started anew, leave everything as it is.
    """
    requests = after.requests - before.requests
    executions = after.executions - before.executions
    if requests < 0 or executions < 0 or after.compute_s < before.compute_s:
        return service
    keep = math.exp(-elapsed_s / AVERAGE_WINDOW_S)
    keep_wait = math.exp(-elapsed_s / WAIT_WINDOW_S)
    if requests == 0 or executions == 0:
        return Service(
            service_s=service.service_s,
            batch=service.batch,
            wait_s=service.wait_s * keep_wait,
            busy=service.busy * keep,
        )
    # Triton counts a batch's whole computation once for each request in it.
    service_s = (after.compute_s - before.compute_s) / requests
    busy = min(executions * service_s / (elapsed_s * instances), 1.0)
    first = service.service_s == 0.0
    return Service(
        service_s=_blend(service.service_s, service_s, 0.0 if first else keep),
        batch=_blend(
            service.batch,
            max((after.inferences - before.inferences) / executions, 1.0),
            0.0 if first else keep,
        ),
        wait_s=_blend(
            service.wait_s, max(after.queue_s - before.queue_s, 0.0) / requests, keep_wait
        ),
        busy=_blend(service.busy, busy, keep),
    )


def capacity_rps(service: Service, *, instances: int) -> float | None:
    """Requests a second that the version completes at most; None before anything was measured."""
    if service.service_s <= 0:
        return None
    return instances * service.batch / service.service_s


def concurrency_at_slo(service: Service, *, instances: int, slo_s: float) -> float | None:
    """Requests that may be inside while the last of them keeps the objective; one an instance.

    None before anything was measured.
    """
    capacity = capacity_rps(service, instances=instances)
    return None if capacity is None else max(capacity * slo_s, float(instances))


def utilization(
    service: Service,
    *,
    in_flight: int,
    queue: int,
    gpu_busy: float | None,
    instances: int,
    slo_s: float,
) -> float:
    """How busy a model version is: 1.0 says send no more; within the bounds of ``limits``.

    Triton exposes sums of queue waits and no quantiles, so a moving mean stands for the median.
    """
    concurrency = concurrency_at_slo(service, instances=instances, slo_s=slo_s)
    capacity = capacity_rps(service, instances=instances)
    inside = in_flight / concurrency if concurrency else float(in_flight > 0)
    # A queue that does not move has no wait to measure yet, but its length tells one.
    expected_wait_s = queue / capacity if capacity else 0.0
    waiting = max(expected_wait_s, service.wait_s) / slo_s
    return clamp(max(inside, waiting, service.busy, gpu_busy or 0.0))


def clamp(value: float) -> float:
    """Utilisation within the bounds that may be reported."""
    return min(max(value, UTILIZATION_MIN), UTILIZATION_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """One model version before it is put into Envoy's unit; ``capacity`` None is not measured."""

    utilization: float
    rps: float
    capacity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """One model version in a load report: Envoy's metric and the rate that scales it back."""

    utilization: float
    rps: float


def report(used: Mapping[str, Used]) -> tuple[float, dict[str, Reported]]:
    """Rate of the node and every version's line in Envoy's unit.

    An idle version has no rate to divide by: it is reported at the rate where its utilisation
    would leave the lower bound, so that it weighs what its speed deserves and neither starves nor
    is flooded. The node's rate is the sum of the reported rates; it only scales, and with it no
    metric falls under its bound.
    """
    rates = {key: _rate(one) for key, one in used.items()}
    node = max(sum(rates.values()), RPS_MIN)
    reported = {
        key: Reported(utilization=one.utilization * node / rates[key], rps=rates[key])
        for key, one in used.items()
    }
    return node, reported


def _rate(used: Used) -> float:
    return max(used.rps, RPS_MIN, UTILIZATION_MIN * (used.capacity or 0.0))


def _blend(old: float, new: float, keep: float) -> float:
    return keep * old + (1.0 - keep) * new
