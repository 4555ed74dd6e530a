"""The newest load report of every node, found by node and assignment, and never used once stale."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace import limits, names
from headrace.signals import NodeLoad, VersionLoad


@dataclass(frozen=True, slots=True)
class _Indexed:
    report: NodeLoad
    by_assignment: Mapping[str, VersionLoad]
    unready: frozenset[str]


class LoadTable:
    """Load reports by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Indexed] = {}

    def __repr__(self) -> str:
        """One line for operators."""
        return f"<LoadTable nodes={len(self._nodes)}>"

    def __iter__(self) -> Iterator[NodeLoad]:
        """Newest reports by node name."""
        return iter(indexed.report for _, indexed in sorted(self._nodes.items()))

    def observe(self, report: NodeLoad) -> None:
        """Take in a report."""
        versions = {names.assignment(load.model, load.version): load for load in report.versions}
        unready = frozenset(name for name, load in versions.items() if not load.ready)
        self._nodes[report.node] = _Indexed(report, versions, unready)

    def keep_only(self, nodes: Mapping[str, object]) -> None:
        """Forget every other node."""
        for node in self._nodes.keys() - nodes.keys():
            del self._nodes[node]

    def get(self, node: str) -> NodeLoad | None:
        """Newest report of a node, whatever its age."""
        indexed = self._nodes.get(node)
        return None if indexed is None else indexed.report

    def utilization(self, node: str, assignment: str, *, now_s: float) -> float | None:
        """Utilisation of a model version on a node; None without a fresh report of it.

        A report from a node that no longer hears Triton is as old as what the node last heard.
        Readiness is the node's own knowledge, and ages with the report alone.
        """
        indexed = self._nodes.get(node)
        if indexed is None or not _is_fresh(indexed.report, now_s + indexed.report.triton_age_s):
            return None
        load = indexed.by_assignment.get(assignment)
        return None if load is None else load.utilization

    def unready(self, *, now_s: float) -> Mapping[str, frozenset[str]]:
        """Nodes that say, freshly, that they lost a model version, by assignment."""
        found: dict[str, set[str]] = defaultdict(set)
        for node, indexed in self._nodes.items():
            if indexed.unready and _is_fresh(indexed.report, now_s):
                for assignment in indexed.unready:
                    found[assignment].add(node)
        return {assignment: frozenset(nodes) for assignment, nodes in found.items()}


def _is_fresh(report: NodeLoad, now_s: float) -> bool:
    return now_s - report.observed_at_s <= limits.SIGNAL_STALE_S
