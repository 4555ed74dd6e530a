"""Metrics of the control server, read from its state when somebody asks for them."""

import itertools
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headrace import limits, metrics
from headrace_xds.configuration import Configuration
from headrace_xds.control import Control
from headrace_xds.counters import Counters
from headrace_xds.publish.publisher import Publisher
from headrace_xds.views import SHORT_TYPES

Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True)
class Observed:
    """What metrics are read from; ``pushes`` are resources sent, by type URL."""

    control: Control
    publisher: Publisher
    configuration: Configuration
    counters: Counters
    pushes: Mapping[str, int]


def render(observed: Observed, now: Callable[[], float]) -> tuple[bytes, str]:
    """Text of every metric, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_State(observed, now()))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _State(Collector):
    def __init__(self, observed: Observed, now_s: float) -> None:
        self._control = observed.control
        self._publisher = observed.publisher
        self._configuration = observed.configuration
        self._counters = observed.counters
        self._pushes = observed.pushes
        self._now_s = now_s

    def collect(self) -> Iterator[Family]:
        """One family a metric."""
        build = ("headrace-xds", version("headrace"), platform.python_version())
        yield _family(metrics.BUILD_INFO, [(build, 1.0)])
        yield from self._of_streams()
        yield from self._of_configuration()
        yield from self._of_nodes()

    def _of_streams(self) -> Iterator[Family]:
        roles: Counter[str] = Counter()
        for proxy in self._control.fleet.proxies.values():
            role = proxy.id.partition("/")[0]
            roles[role if role in ("gateway", "gpu") else metrics.OTHER] += len(proxy.streams)
        yield _family(metrics.XDS_STREAMS, _counted(roles))
        quarantined = float(len(self._publisher.quarantine))
        yield _family(metrics.XDS_QUARANTINED, [((), quarantined)])
        waiting = float(self._publisher.canary.is_waiting)
        yield _family(metrics.XDS_CANARY_WAITING, [((), waiting)])
        yield _family(metrics.XDS_PUSHES, _by_type(self._pushes))
        yield _family(metrics.XDS_ACKS, _by_type(self._counters.acks))
        yield _family(metrics.XDS_NACKS, _by_type(self._counters.nacks))
        pushes = float(self._control.sets.weight_changes)
        yield _family(metrics.XDS_WEIGHT_PUSHES, [((), pushes)])

    def _of_configuration(self) -> Iterator[Family]:
        configuration = self._configuration
        severities = Counter(problem.severity.label.lower() for problem in configuration.problems)
        yield _family(metrics.CONFIG_GENERATION, [((), float(configuration.generation))])
        yield _family(metrics.CONFIG_PROBLEMS, _counted(severities))
        yield _family(metrics.CONFIG_REJECTED, [((), float(configuration.rejections))])
        yield _family(metrics.CONFIG_LAST_SUCCESS, [((), configuration.last_success_s)])

    def _of_nodes(self) -> Iterator[Family]:
        nodes = self._control.membership.nodes.values()
        states = Counter(node.state.value for node in nodes)
        held = Counter(holding.state.value for node in nodes for holding in node.holdings.values())
        health: Counter[str] = Counter(
            endpoint.health
            for endpoints in self._control.sets.endpoints().values()
            for endpoint in endpoints
        )
        withheld = float(len(self._control.withheld))
        ages = [
            ((load.node,), max(self._now_s - load.observed_at_s, 0.0))
            for load in itertools.islice(self._control.loads, limits.MODEL_LABELS)
        ]
        yield _family(metrics.GPU_NODES, _counted(states))
        yield _family(metrics.HOLDINGS, _counted(held))
        yield _family(metrics.ENDPOINTS, _counted(health))
        yield _family(metrics.ENDPOINTS_WITHHELD, [((), withheld)])
        yield _family(metrics.LOAD_REPORT_AGE, ages)
        yield _family(metrics.LEDGER_FAILURES, [((), float(self._counters.ledger_failures))])


def _family(row: metrics.Metric, samples: Iterable[Sample]) -> Family:
    """Family of a row of the table; values are given in the order of its labels."""
    kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
    family = kind(row.name, row.help, labels=row.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _counted(counts: Mapping[str, int]) -> list[Sample]:
    return [((key,), float(count)) for key, count in sorted(counts.items())]


def _by_type(counts: Mapping[str, int]) -> list[Sample]:
    short: Counter[str] = Counter()
    for type_url, count in counts.items():
        short[SHORT_TYPES.get(type_url, metrics.OTHER)] += count
    return _counted(short)
