"""Rows of ``headrace.metrics`` as Prometheus collectors, with a bound on label sets.

Prometheus keeps every label set for ever, so what comes after the limit is counted as ``other``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace import limits
from headrace.metrics import OTHER, Metric

# When a counter began is a series for each series, and in no row of the table.
disable_created_metrics()  # type: ignore[no-untyped-call]

Sample = tuple[Sequence[str], float]
"""Label values and a value."""


class LabelSets:
    """Label sets that are told apart; the rest are ``other``."""

    def __init__(self, *, limit: int = limits.MODEL_LABELS) -> None:
        self._limit = limit
        self._known: set[tuple[str, ...]] = set()

    def __repr__(self) -> str:
        """One line for operators."""
        return f"LabelSets({len(self._known)}/{self._limit})"

    def __contains__(self, values: Sequence[str]) -> bool:
        """Whether these values are told apart."""
        return tuple(values) in self._known

    def admit(self, values: Sequence[str]) -> tuple[str, ...]:
        """The values themselves, or ``other`` for each."""
        key = tuple(values)
        if key in self._known:
            return key
        if len(self._known) >= self._limit:
            return (OTHER,) * len(key)
        self._known.add(key)
        return key


class Counted:
    """A counter."""

    def __init__(self, metric: Metric, registry: CollectorRegistry, *, limit: int) -> None:
        assert metric.kind == "counter"
        self._sets = LabelSets(limit=limit)
        self._counter = Counter(metric.name, metric.help, metric.labels, registry=registry)
        self._children: dict[tuple[str, ...], Counter] = {}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """Count."""
        # Kept by label set: looking a child up in the library costs more than counting.
        child = self._children.get(labels)
        if child is None:
            child = self._counter.labels(*self._sets.admit(labels)) if labels else self._counter
            if labels in self._sets:
                self._children[labels] = child
        child.inc(amount)


class Timed:
    """A histogram of seconds."""

    def __init__(self, metric: Metric, registry: CollectorRegistry, *, limit: int) -> None:
        assert metric.kind == "histogram"
        self._sets = LabelSets(limit=limit)
        self._histogram = Histogram(
            metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=registry
        )
        self._children: dict[tuple[str, ...], Histogram] = {}

    def observe(self, *labels: str, seconds: float) -> None:
        """Count one duration."""
        child = self._children.get(labels)
        if child is None:
            child = self._histogram.labels(*self._sets.admit(labels)) if labels else self._histogram
            if labels in self._sets:
                self._children[labels] = child
        child.observe(seconds)


class _Gauges(Collector):
    """Gauges that are computed when somebody asks."""

    def __init__(self, metric: Metric, samples: Callable[[], Iterable[Sample]], limit: int) -> None:
        self._metric = metric
        self._samples = samples
        self._limit = limit

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family with the values of this moment."""
        metric, sets = self._metric, LabelSets(limit=self._limit)
        summed: dict[tuple[str, ...], float] = {}
        for labels, value in self._samples():
            key = sets.admit(labels)
            summed[key] = summed.get(key, 0.0) + value
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        for key, value in summed.items():
            family.add_metric(key, value)
        yield family

    def describe(self) -> list[GaugeMetricFamily]:
        """Names only: nothing is computed when the collector is registered."""
        return [GaugeMetricFamily(self._metric.name, self._metric.help)]


MODEL_LABELS: Final = limits.MODEL_LABELS


class Exposition:
    """One program's metrics, each made from a row of the table."""

    def __init__(self, *, limit: int = MODEL_LABELS) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._limit = limit

    def counter(self, metric: Metric) -> Counted:
        """A counter of that row."""
        return Counted(metric, self.registry, limit=self._limit)

    def histogram(self, metric: Metric) -> Timed:
        """A histogram of that row."""
        return Timed(metric, self.registry, limit=self._limit)

    def gauge(self, metric: Metric, samples: Callable[[], Iterable[Sample]]) -> None:
        """Gauges of that row, computed by ``samples`` at every scrape."""
        assert metric.kind == "gauge"
        self.registry.register(_Gauges(metric, samples, self._limit))
