"""The endpoint fast lane: from membership and load to endpoint resources, region by region.

It never waits for a rebuild of the model, and encodes only the clusters whose members, health or
weights differ from what was published.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headrace import ir, limits, names
from headrace.policy.membership import Holder, Membership
from headrace.policy.record import NodeInfo
from headrace.policy.weights import weigh
from headrace.signals import NodeLoad, VersionLoad
from headrace_xds.translate.endpoints import Member, load_assignment
from headrace_xds.translate.resources import Resource

Health = Literal["healthy", "draining", "unhealthy"]
PROTOCOLS: tuple[names.Protocol, ...] = ("http", "grpc")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A node in an endpoint set, as every region sees it."""

    info: NodeInfo
    weight: int
    health: Health


@dataclass
class _Cluster:
    """Endpoints of a cluster and the resources encoded from them."""

    endpoints: tuple[Endpoint, ...]
    by_region: dict[str, Resource] = field(default_factory=dict)


class EndpointSets:
    """Current endpoint sets of every cluster; ``refresh`` follows membership and load."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster] = {}
        self._weights: dict[str, dict[str, int]] = {}
        self._weighed_at_s = float("-inf")
        self.weight_changes = 0
        """Times that the weights of a model version changed."""

    def __repr__(self) -> str:
        """One line for operators."""
        ends = sum(len(cluster.endpoints) for cluster in self._clusters.values())
        return f"<EndpointSets clusters={len(self._clusters)} endpoints={ends}>"

    def refresh(
        self,
        versions: Iterable[ir.ServedVersion],
        membership: Membership,
        loads: Mapping[str, NodeLoad],
        *,
        now_s: float,
    ) -> bool:
        """Work out every endpoint set again; True when one of them differs."""
        weigh_now = now_s - self._weighed_at_s >= limits.WEIGHT_PUSH_PERIOD_S
        if weigh_now:
            self._weighed_at_s = now_s
        sets: dict[str, tuple[Endpoint, ...]] = {}
        known: set[str] = set()
        for served in versions:
            name = served.assignment.name
            known.add(name)
            endpoints = self._endpoints(served, membership, loads, now_s, weigh_now=weigh_now)
            for protocol in PROTOCOLS:
                sets[names.cluster(served.model, served.version, protocol)] = endpoints
        everyone = tuple(
            Endpoint(holder.info, 1, "draining" if holder.draining else "healthy")
            for holder in membership.serving_nodes()
        )
        for protocol in PROTOCOLS:
            sets[names.node_cluster(protocol)] = everyone
        for name in self._weights.keys() - known:
            del self._weights[name]
        return self._replace(sets)

    def endpoints(self) -> dict[str, tuple[Endpoint, ...]]:
        """Endpoints by cluster."""
        return {name: cluster.endpoints for name, cluster in self._clusters.items()}

    def resources(self, region: ir.Region, pools: Mapping[str, ir.Pool]) -> dict[str, Resource]:
        """Endpoint resources as gateways of a region get them."""
        order = {name: rank for rank, name in enumerate((region.name, *region.failover))}
        key = f"{region.name}>{','.join(region.failover)}"
        result: dict[str, Resource] = {}
        for name, cluster in self._clusters.items():
            if key not in cluster.by_region:
                members = _members(name, cluster.endpoints, order, pools)
                cluster.by_region[key] = load_assignment(name, members)
            result[name] = cluster.by_region[key]
        return result

    def relocate(self) -> None:
        """Encode everything again: regions or pools have changed."""
        for cluster in self._clusters.values():
            cluster.by_region.clear()

    def _endpoints(
        self,
        served: ir.ServedVersion,
        membership: Membership,
        loads: Mapping[str, NodeLoad],
        now_s: float,
        *,
        weigh_now: bool,
    ) -> tuple[Endpoint, ...]:
        holders = membership.holders(served.assignment.name)
        fresh = {
            holder.info.name: _fresh(loads.get(holder.info.name), served, now_s)
            for holder in holders
        }
        weights = self._weigh(served, fresh, weigh_now=weigh_now)
        return tuple(
            Endpoint(holder.info, weights.get(holder.info.name, 1), _health(holder, fresh))
            for holder in holders
        )

    def _weigh(
        self,
        served: ir.ServedVersion,
        fresh: Mapping[str, VersionLoad | None],
        *,
        weigh_now: bool,
    ) -> Mapping[str, int]:
        """Weights of a version's nodes; a node that is new between two weighings gets one too."""
        if served.balance != "least-loaded":
            return {}
        name = served.assignment.name
        previous = self._weights.get(name, {})
        if weigh_now or previous.keys() != fresh.keys():
            utilization = {
                node: None if load is None else load.utilization for node, load in fresh.items()
            }
            self._weights[name] = weigh(utilization, previous)
            self.weight_changes += self._weights[name] != previous
        return self._weights[name]

    def _replace(self, sets: Mapping[str, tuple[Endpoint, ...]]) -> bool:
        changed = False
        for name in self._clusters.keys() - sets.keys():
            del self._clusters[name]
            changed = True
        for name, endpoints in sets.items():
            current = self._clusters.get(name)
            if current is None or current.endpoints != endpoints:
                self._clusters[name] = _Cluster(endpoints)
                changed = True
        return changed


def _members(
    cluster: str,
    endpoints: Sequence[Endpoint],
    order: Mapping[str, int],
    pools: Mapping[str, ir.Pool],
) -> list[Member]:
    """Members a region may use. A region's rank is its priority even where nobody is there, so
    that endpoints do not change priority when a region empties and fills."""
    http = cluster.endswith("-http")
    members = []
    for endpoint in endpoints:
        info = endpoint.info
        pool = pools.get(info.pool)
        if pool is None or pool.region not in order:
            continue
        members.append(
            Member(
                node=info.name,
                address=info.address,
                port=info.http_port if http else info.grpc_port,
                region=pool.region,
                zone=pool.zone,
                priority=order[pool.region],
                weight=endpoint.weight,
                health=endpoint.health,
            )
        )
    return members


def _fresh(load: NodeLoad | None, served: ir.ServedVersion, now_s: float) -> VersionLoad | None:
    if load is None or now_s - load.observed_at_s > limits.SIGNAL_STALE_S:
        return None
    for version in load.versions:
        if version.model == served.model and version.version == served.version:
            return version
    return None


def _health(holder: Holder, fresh: Mapping[str, VersionLoad | None]) -> Health:
    if holder.draining:
        return "draining"
    load = fresh[holder.info.name]
    return "healthy" if load is None or load.ready else "unhealthy"
