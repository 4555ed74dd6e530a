"""``Sampler``: the load of every model version, anew every SIGNAL_PERIOD_S, each with an age.

Two loops that never wait for each other: one reads Triton's metrics page, which may be slow or
gone, one computes signals from the newest page and the front door's own counters.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import aiohttp
import msgspec

from headrace import limits, names
from headrace.assignment import Assignment
from headrace.policy import utilization
from headrace.policy.utilization import Service
from headrace_sidecar.gpu import tritonmetrics
from headrace_sidecar.gpu.rates import Rate
from headrace_sidecar.gpu.reading import read_whole
from headrace_sidecar.gpu.serving import Served

SCRAPE_S: Final = 1.0
"""Time a scrape of Triton's metrics may take."""
FRESH_S: Final = 1.0
"""A metrics page older than this says nothing about queues, waits and busy time any more."""


class VersionSignal(msgspec.Struct, frozen=True, kw_only=True):
    """Load of one model version; ``concurrency`` and ``capacity`` None before they are measured.

    ``rps`` counts what gateways sent. Requests from elsewhere are in ``utilization`` alone, so that
    they lower the node's weight instead of looking like the work of a fast node.
    """

    model: str
    version: int
    ready: bool
    queue: int
    running: int
    utilization: float
    rps: float
    concurrency: float | None
    capacity: float | None
    service: Service


class NodeSignals(msgspec.Struct, frozen=True, kw_only=True):
    """Load of the node at one moment; ``triton_s`` is when Triton was last heard, if ever.

    ``triton_age_s`` is how long it has been silent; before it was heard at all, since the start.
    """

    observed_s: float
    triton_s: float | None
    triton_age_s: float
    versions: tuple[VersionSignal, ...]


class _Watched:
    """What is remembered of one version between samples."""

    def __init__(self, served: Served, now_s: float) -> None:
        self.rate = Rate(total=served.stamped_total, now_s=now_s)
        self.service = Service()
        self.counters: tritonmetrics.Counters | None = None
        self.counted_s = now_s

    def count(self, counters: tritonmetrics.Counters, assignment: Assignment, at_s: float) -> None:
        """Fold a reading of Triton's counters in."""
        before = self.counters
        if before is not None and at_s > self.counted_s:
            self.service = utilization.measure(
                self.service,
                before.totals,
                counters.totals,
                elapsed_s=at_s - self.counted_s,
                instances=assignment.instances,
            )
        self.counters, self.counted_s = counters, at_s

    def pending(self, now_s: float) -> int | None:
        """Requests that wait in Triton; None where it did not tell of late."""
        if self.counters is None or now_s - self.counted_s > FRESH_S:
            return None
        return self.counters.pending

    def known(self, now_s: float) -> Service:
        """What still holds of the measurements: cost outlives Triton's page, load does not."""
        if self.pending(now_s) is not None:
            return self.service
        return Service(service_s=self.service.service_s, batch=self.service.batch)


class Sampler:
    """The newest signals, and who is told of them."""

    def __init__(
        self,
        served: Callable[[], Iterable[Served]],
        *,
        answers: Callable[[Served], bool],
        change: Callable[[], asyncio.Event],
        gpu_busy: Callable[[], float | None],
        metrics_address: Callable[[], str],
        now: Callable[[], float],
    ) -> None:
        self.page = b""
        """Triton's metrics page as it was last read."""
        self._served = served
        self._answers = answers
        self._change = change
        self._gpu_busy = gpu_busy
        self._metrics_address = metrics_address
        self._now = now
        self._watched: dict[str, _Watched] = {}
        self._triton_s: float | None = None
        self._began_s = now()
        self._changed = change()
        self._newest = NodeSignals(
            observed_s=self._began_s, triton_s=None, triton_age_s=0.0, versions=()
        )

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Sampler({len(self._watched)} versions at {self._newest.observed_s:.3f})"

    def current(self) -> NodeSignals:
        """The signals of the last sample, or of now when readiness has changed since."""
        return self.sample() if self._changed.is_set() else self._newest

    def service_s(self, name: str) -> float:
        """What one batch of a version takes; 0 before it was measured."""
        watched = self._watched.get(name)
        return watched.service.service_s if watched is not None else 0.0

    def executed(self, name: str) -> int:
        """Batches of a version that Triton counted, whoever asked for them."""
        watched = self._watched.get(name)
        counters = watched.counters if watched is not None else None
        return int(counters.executions) if counters is not None else 0

    async def run(self) -> None:
        """Sample until cancelled."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SCRAPE_S)) as session,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(self._scrape(session), name="scrape triton")
            tasks.create_task(self._sample_for_ever(), name="sample signals")

    async def _sample_for_ever(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(limits.SIGNAL_PERIOD_S / 2)

    async def _scrape(self, session: aiohttp.ClientSession) -> None:
        while True:
            await asyncio.sleep(limits.SIGNAL_PERIOD_S / 2)
            address = self._metrics_address()
            if not address:
                continue
            try:
                async with session.get(f"http://{address}/metrics") as response:
                    page = await read_whole(
                        response.content, limit_bytes=limits.TRITON_METRICS_BYTES
                    )
            except (aiohttp.ClientError, TimeoutError, OSError):
                # Its age grows, and that is what the signals say.
                continue
            if page is not None:
                self.take(page)

    def take(self, page: bytes) -> None:
        """Take a metrics page of Triton's."""
        self.page, self._triton_s = page, self._now()
        models = tritonmetrics.parse(page.decode(errors="replace"))
        for served in self._served():
            counters = models.get(served.triton_model)
            if counters is not None:
                self._watch(served).count(counters, served.assignment, self._triton_s)

    def sample(self) -> NodeSignals:
        """Compute the signals of this moment."""
        now_s, self._changed = self._now(), self._change()
        versions = tuple(self._signal(served, now_s) for served in self._served())
        present = {names.assignment(one.model, one.version) for one in versions}
        self._watched = {name: one for name, one in self._watched.items() if name in present}
        heard_s = self._began_s if self._triton_s is None else self._triton_s
        self._newest = NodeSignals(
            observed_s=now_s,
            triton_s=self._triton_s,
            triton_age_s=now_s - heard_s,
            versions=versions,
        )
        return self._newest

    def _watch(self, served: Served) -> _Watched:
        name = served.assignment.name
        watched = self._watched.get(name)
        if watched is None:
            watched = self._watched[name] = _Watched(served, self._now())
        return watched

    def _signal(self, served: Served, now_s: float) -> VersionSignal:
        watched, assignment = self._watch(served), served.assignment
        watched.rate.observe(total=served.stamped_total, now_s=now_s)
        service, queue = watched.known(now_s), self._queue(served, watched, now_s)
        instances = assignment.instances
        used = utilization.utilization(
            service,
            in_flight=served.in_flight,
            queue=queue,
            gpu_busy=self._gpu_busy(),
            instances=instances,
            slo_s=assignment.slo_s,
        )
        return VersionSignal(
            model=assignment.model,
            version=assignment.version,
            ready=self._answers(served),
            queue=queue,
            running=served.in_flight,
            utilization=used,
            rps=watched.rate.per_s,
            concurrency=utilization.concurrency_at_slo(
                service, instances=instances, slo_s=assignment.slo_s
            ),
            capacity=utilization.capacity_rps(service, instances=instances),
            service=service,
        )

    def _queue(self, served: Served, watched: _Watched, now_s: float) -> int:
        """Requests that wait in Triton, whoever sent them; reckoned while Triton is silent."""
        pending = watched.pending(now_s)
        if pending is not None:
            return pending
        assignment = served.assignment
        at_work = assignment.instances * max(1, assignment.batching.max_batch_size)
        return max(0, served.in_flight - at_work)
