"""``Serving``: the node's table of model versions, who may enter, and what happened to them.

Both front doors find versions here and count every request in and out; the node's lifecycle puts
versions in and says when they answer; load signals are read from the counters. No clock of its
own: whoever calls says what time it is.
"""

import asyncio
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headrace import limits, names
from headrace.assignment import Assignment
from headrace.oip.priority import SHARES
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu.bodies import Bodies

_SMOOTHING: Final = 0.2
"""Weight of the newest latency in the moving average."""


class Outcome(enum.Enum):
    """How a request that was let in ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"
    """Triton would not run it: its queue is full, or the request is wrong."""
    ABANDONED = "abandoned"
    """The caller left."""


class Served:
    """One model version on this node: whether it answers, and its counters."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.triton_model = names.triton_model(assignment.model, assignment.version)
        self.ready = False
        self.reason = "is being loaded"
        self.in_flight = 0
        self.stamped_total = 0
        """Completed requests that a gateway chose this node for: what its weights can move."""
        self.completed_total = 0
        self.failed_total = 0
        self.refused_total = 0
        self.abandoned_total = 0
        self.last_started_s: float | None = None
        self.last_completed_s: float | None = None
        self.latency_s: float | None = None
        """Moving average of whole requests that completed."""

    def __repr__(self) -> str:
        """One line for operators."""
        state = "ready" if self.ready else f"unready: {self.reason}"
        return (
            f"Served({self.assignment.name} {state}, {self.in_flight} in flight, "
            f"{self.completed_total} completed, {self.failed_total} failed, "
            f"{self.refused_total} refused)"
        )

    @property
    def capacity(self) -> int:
        """Requests that may be inside: waiting in Triton's queue, running, and forming a batch."""
        batching = self.assignment.batching
        return batching.max_queue_size + (
            2 * self.assignment.instances * max(1, batching.max_batch_size)
        )


class Serving:
    """Model versions by name, and the bound on what is in flight on the node."""

    def __init__(self, *, node: str, capacity: int = limits.IN_FLIGHT_PER_NODE) -> None:
        self.node = node
        self.capacity = capacity
        self.in_flight = 0
        self.bodies = Bodies()
        self.on_end: Callable[[Assignment, str, float], None] | None = None
        """Hears of every request that ended: how, and after how many seconds."""
        self.on_refused: Callable[[str], None] | None = None
        """Hears the code of every refusal."""
        self._leaving = False
        self._draining = False
        self._models: dict[str, dict[int, Served]] = {}
        self._change = asyncio.Event()

    def __repr__(self) -> str:
        """One line for operators."""
        draining = "draining, " if self._draining else ""
        return f"Serving({self.node}: {draining}{self.in_flight}/{self.capacity}, {list(self)})"

    def __iter__(self) -> Iterator[Served]:
        """Every version on the node."""
        return (served for versions in self._models.values() for served in versions.values())

    @property
    def leaving(self) -> bool:
        """Whether the node says that it goes; requests are still let in until it drains."""
        return self._leaving or self._draining

    @leaving.setter
    def leaving(self, value: bool) -> None:
        self._leaving = value
        self._changed()

    @property
    def draining(self) -> bool:
        """Whether the node is leaving: what is inside goes on, nothing more comes in."""
        return self._draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self._draining = value
        self._changed()

    @property
    def change(self) -> asyncio.Event:
        """Set at the next change of readiness; take it anew to wait for the one after."""
        return self._change

    def put(self, assignment: Assignment) -> Served:
        """Enter a version, not ready; one that is there keeps its counters and readiness."""
        versions = self._models.setdefault(assignment.model, {})
        served = versions.get(assignment.version)
        if served is None:
            served = versions[assignment.version] = Served(assignment)
        served.assignment = assignment
        self._changed()
        return served

    def drop(self, model: str, version: int) -> None:
        """Take a version out; requests inside finish."""
        versions = self._models.get(model, {})
        versions.pop(version, None)
        if not versions:
            self._models.pop(model, None)
        self._changed()

    def set_ready(self, model: str, version: int) -> None:
        """Let requests for a version in."""
        served = self._models[model][version]
        served.ready, served.reason = True, ""
        self._changed()

    def set_unready(self, model: str, version: int, reason: str) -> None:
        """Refuse requests for a version, with a reason such as ``is being repaired``."""
        served = self._models[model][version]
        served.ready, served.reason = False, reason
        self._changed()

    def versions(self, model: str) -> Mapping[int, Served]:
        """Versions of a model on this node, by number."""
        return self._models.get(model, {})

    def find(self, model: str, version: int | None, *, routed: bool = False) -> Served:
        """A version, ready or not; without a number the newest that is ready, else the newest.

        ``routed`` says that a gateway chose this node for the version. Then its absence is not the
        caller's mistake: the node lost it and a gateway has not heard yet, so another may have it.
        """
        versions = self._models.get(model, {})
        if version is None and versions:
            return max(versions.values(), key=lambda one: (one.ready, one.assignment.version))
        served = versions.get(version or 0)
        if served is None:
            what = f"model {model!r}" if version is None else f"version {version} of {model!r}"
            raise Refused(
                Refusal.NOT_READY if routed else Refusal.MODEL_NOT_FOUND,
                f"{what} is not on this node",
                where="version" if versions else "model",
            )
        return served

    def answers(self, served: Served) -> bool:
        """Whether new requests for the version should be sent here."""
        return served.ready and not self.leaving

    def check_answers(self, served: Served) -> None:
        """Refuse who asks whether to send requests here when the answer is no."""
        if self.leaving:
            raise Refused(Refusal.DRAINING, f"node {self.node} is leaving")
        self.check_ready(served)

    def check_ready(self, served: Served) -> None:
        """Refuse what asks for a version that does not answer."""
        if self._draining:
            raise Refused(Refusal.DRAINING, f"node {self.node} is leaving")
        if not served.ready:
            raise Refused(Refusal.NOT_READY, f"{served.assignment.name} {served.reason}")

    def begin(self, served: Served, *, tier: str, now_s: float) -> None:
        """Count a request in, or refuse it: not ready, draining, or more than its tier may fill."""
        try:
            self.check_ready(served)
            share = SHARES[tier]
            if self.in_flight >= max(1, int(self.capacity * share)):
                raise Refused(Refusal.OVERLOADED, f"node {self.node} is full")
            if served.in_flight >= max(1, int(served.capacity * share)):
                raise Refused(Refusal.OVERLOADED, f"{served.assignment.name} is full here")
        except Refused:
            served.refused_total += 1
            raise
        self.in_flight += 1
        served.in_flight += 1
        served.last_started_s = now_s

    def end(
        self,
        served: Served,
        outcome: Outcome,
        *,
        started_s: float,
        now_s: float,
        stamped: bool = False,
    ) -> None:
        """Count a request out that ``begin`` let in; ``stamped`` by the gateway that sent it."""
        assert served.in_flight > 0
        self.in_flight -= 1
        served.in_flight -= 1
        latency_s = now_s - started_s
        if self.on_end is not None:
            self.on_end(served.assignment, outcome.value, latency_s)
        match outcome:
            case Outcome.COMPLETED:
                served.completed_total += 1
                served.stamped_total += stamped
                served.last_completed_s = now_s
                before_s = latency_s if served.latency_s is None else served.latency_s
                served.latency_s = before_s + _SMOOTHING * (latency_s - before_s)
            case Outcome.FAILED:
                served.failed_total += 1
            case Outcome.REFUSED:
                served.refused_total += 1
            case Outcome.ABANDONED:
                served.abandoned_total += 1

    def hear(self, refused: Refused) -> None:
        """A front door refused a request, whatever for."""
        if self.on_refused is not None:
            self.on_refused(refused.refusal.code)

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
