"""What happens on streams, told to membership and to the fleet's ledger."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headrace.metrics import OTHER
from headrace.names import ASSIGNMENT_TYPE_URL, gpu_node_id, publication_group
from headrace.policy.membership import Membership
from headrace_xds import sidecars
from headrace_xds.counters import Counters
from headrace_xds.fleet import Fleet
from headrace_xds.messages import NodeInfo
from headrace_xds.publish.publisher import Publisher
from headrace_xds.typepolicy import POLICIES

NAMES_SHOWN: Final = 10
"""Names listed in one log line."""

log = logging.getLogger(__name__)


class StreamObserver:
    """Observer of the hub; ``changed`` is called when a decision may have to be made anew."""

    def __init__(
        self,
        membership: Membership,
        fleet: Fleet,
        publisher: Publisher,
        *,
        now: Callable[[], float],
        changed: Callable[[], None],
        counters: Counters,
    ) -> None:
        self._membership = membership
        self._fleet = fleet
        self._publisher = publisher
        self._now = now
        self._changed = changed
        self._counters = counters
        self.rejected: dict[str, str] = {}
        """GPU sidecars whose description of their node is of no use, and why."""

    def connected(self, stream_id: int, node: NodeInfo) -> None:
        """A client opened a stream."""
        at_s = self._now()
        group = publication_group(node.id)
        self._fleet.connected(stream_id, node.id, group, node.build, at_s=at_s)
        log.info("%s connected", node.id)
        if not sidecars.is_gpu(node):
            return
        described = sidecars.gpu_node(node)
        if isinstance(described, str):
            self.rejected[node.id] = described
            log.warning("%s: %s; the node is not placed", node.id, described)
            return
        if not self._membership.connect(stream_id, described, now_s=at_s):
            self.rejected[node.id] = "a static node has this name, or there are too many nodes"
            log.warning("%s: %s", node.id, self.rejected[node.id])
            return
        self.rejected.pop(node.id, None)
        self._changed()

    def disconnected(self, stream_id: int, node: NodeInfo) -> None:
        """A stream ended."""
        log.info("%s disconnected", node.id)
        self._fleet.disconnected(stream_id, node.id)
        self._publisher.left(node)
        self.rejected.pop(node.id, None)
        if sidecars.is_gpu(node):
            name = node.id.removeprefix(gpu_node_id(""))
            self._membership.disconnect(stream_id, name, now_s=self._now())
            self._changed()

    def claimed(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        """A client said what it has of a type."""
        self._fleet.claimed(node.id, type_url, versions)
        self._publisher.took(node, type_url, versions)
        if (name := _sidecar_of(node, type_url)) is not None:
            self._membership.claim(name, versions, now_s=self._now())
            self._changed()

    def leaving(self, node: NodeInfo, type_url: str) -> None:
        """A client wants no more of a type: a sidecar that says so is leaving."""
        if (name := _sidecar_of(node, type_url)) is not None:
            log.info("%s is leaving", node.id)
            self._membership.leave(name, now_s=self._now())
            self._changed()

    def acked(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        """A client put versions into effect; an empty one is a removal."""
        at_s = self._now()
        self._counters.acks[_counted(type_url)] += len(versions)
        self._fleet.acked(node.id, type_url, versions, at_s=at_s)
        self._publisher.took(node, type_url, versions)
        if (gpu := _sidecar_of(node, type_url)) is not None:
            for name, version in versions.items():
                self._membership.ack(gpu, name, version, now_s=at_s)
                log.info("%s %s %s", node.id, "holds" if version else "dropped", name)
            self._changed()

    def held_back(self, node: NodeInfo, missing: Mapping[str, frozenset[str]]) -> None:
        """Routes wait for clusters that a client lacks."""
        self._fleet.held_back(node.id, missing)
        for name, clusters in sorted(missing.items()):
            log.warning("%s: routes %s are held back: it lacks %s", node.id, name, _some(clusters))
        if not missing:
            log.info("%s: no routes are held back any more", node.id)

    def nacked(
        self, node: NodeInfo, type_url: str, versions: Mapping[str, str], message: str
    ) -> None:
        """A client refused what it was sent."""
        at_s = self._now()
        log.warning("%s refused %s: %s", node.id, ", ".join(versions), message)
        self._counters.nacks[_counted(type_url)] += 1
        self._fleet.nacked(node.id, type_url, versions, message, at_s=at_s)
        self._publisher.refused(node, type_url, versions, message)
        if (gpu := _sidecar_of(node, type_url)) is not None:
            for name in versions:
                self._membership.nack(gpu, name, message, now_s=at_s)
            self._changed()


def _some(clusters: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    ordered = sorted(clusters)
    more = len(ordered) - NAMES_SHOWN
    return ", ".join(ordered[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _counted(type_url: str) -> str:
    """Clients choose type URLs; what is not served is counted as one."""
    return type_url if type_url in POLICIES else OTHER


def _sidecar_of(node: NodeInfo, type_url: str) -> str | None:
    if type_url != ASSIGNMENT_TYPE_URL or not sidecars.is_gpu(node):
        return None
    return node.id.removeprefix(gpu_node_id(""))
