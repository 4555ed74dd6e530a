"""The endpoint fast lane: from membership and load to endpoint resources, region by region.

It never waits for a rebuild of the model, and encodes only the clusters whose members, health or
weights differ from what was published.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace import ir, limits, names
from headrace.policy.membership import Membership
from headrace.policy.nodes import Holder
from headrace.policy.record import NodeInfo
from headrace.policy.weights import weigh
from headrace.routing import ranks
from headrace_xds.loads import LoadTable
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


class _Basis(NamedTuple):
    """What the endpoints of a version are made from, but for weights, which ``follow`` sees to."""

    served: ir.ServedVersion
    holders: Sequence[Holder]
    unready: frozenset[str]


class EndpointSets:
    """Current endpoint sets of every cluster; ``refresh`` follows membership and load."""

    def __init__(self) -> None:
        self.weight_changes = 0
        """Times that the weights of a model version changed."""
        self._clusters: dict[str, _Cluster] = {}
        self._bases: dict[str, _Basis] = {}
        self._weights: dict[str, dict[str, int]] = {}
        self._unready: Mapping[str, frozenset[str]] = {}
        self._weighed_at_s = float("-inf")

    def __repr__(self) -> str:
        """One line for operators."""
        ends = sum(len(cluster.endpoints) for cluster in self._clusters.values())
        return f"<EndpointSets clusters={len(self._clusters)} endpoints={ends}>"

    def rebuild(
        self,
        versions: Iterable[ir.ServedVersion],
        membership: Membership,
        loads: LoadTable,
        *,
        now_s: float,
    ) -> bool:
        """Work out every endpoint set again; True when one of them differs."""
        self._unready = loads.unready(now_s=now_s)
        holders = membership.holders()
        sets: dict[str, tuple[Endpoint, ...]] = {}
        current: dict[str, _Basis] = {}
        for served in versions:
            name = served.assignment.name
            basis = _Basis(served, holders.get(name, []), self._unready.get(name, frozenset()))
            current[name] = basis
            # Most versions are as they were, and there are thousands.
            if basis != self._bases.get(name):
                endpoints = self._endpoints(served, basis.holders, loads, now_s)
                for protocol in PROTOCOLS:
                    sets[names.cluster(served.model, served.version, protocol)] = endpoints
        some = tuple(
            Endpoint(holder.info, 1, "draining" if holder.draining else "healthy")
            for holder in _some_of_each_pool(membership.serving_nodes())
        )
        for protocol in PROTOCOLS:
            sets[names.node_cluster(protocol)] = some
        gone = [self._bases[name].served for name in self._bases.keys() - current.keys()]
        self._bases = current
        for served in gone:
            self._weights.pop(served.assignment.name, None)
            for protocol in PROTOCOLS:
                self._clusters.pop(names.cluster(served.model, served.version, protocol), None)
        return self._update(sets) or bool(gone)

    def follow(
        self, versions: Iterable[ir.ServedVersion], loads: LoadTable, *, now_s: float
    ) -> bool:
        """Follow load, where it matters and at most five times a second; members are unchanged."""
        if now_s - self._weighed_at_s < limits.WEIGHT_PUSH_PERIOD_S:
            return False
        self._weighed_at_s = now_s
        before, self._unready = self._unready, loads.unready(now_s=now_s)
        moved = {name for name in before.keys() | self._unready if self._differs(name, before)}
        sets: dict[str, tuple[Endpoint, ...]] = {}
        for served in versions:
            if served.balance != "least-loaded" and not moved:
                continue
            name = served.assignment.name
            if served.balance != "least-loaded" and name not in moved:
                continue
            cluster = self._clusters[names.cluster(served.model, served.version, "http")]
            nodes = [endpoint.info.name for endpoint in cluster.endpoints]
            if not self._weigh(served, nodes, loads, now_s) and name not in moved:
                continue
            holders = [
                Holder(endpoint.info, draining=endpoint.health == "draining")
                for endpoint in cluster.endpoints
            ]
            endpoints = self._endpoints(served, holders, loads, now_s)
            for protocol in PROTOCOLS:
                sets[names.cluster(served.model, served.version, protocol)] = endpoints
        return self._update(sets)

    def endpoints(self) -> dict[str, tuple[Endpoint, ...]]:
        """Endpoints by cluster."""
        return {name: cluster.endpoints for name, cluster in self._clusters.items()}

    def resources(self, region: ir.Region, pools: Mapping[str, ir.Pool]) -> dict[str, Resource]:
        """Endpoint resources as gateways of a region get them."""
        order = ranks(region)
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

    def _differs(self, name: str, before: Mapping[str, frozenset[str]]) -> bool:
        return before.get(name) != self._unready.get(name)

    def _endpoints(
        self, served: ir.ServedVersion, holders: Sequence[Holder], loads: LoadTable, now_s: float
    ) -> tuple[Endpoint, ...]:
        nodes = [holder.info.name for holder in holders]
        if self._weights.get(served.assignment.name, {}).keys() != set(nodes):
            self._weigh(served, nodes, loads, now_s)
        weights = self._weights.get(served.assignment.name, {})
        unready = self._unready.get(served.assignment.name, frozenset())
        return tuple(
            Endpoint(holder.info, weights.get(holder.info.name, 1), _health(holder, unready))
            for holder in holders
        )

    def _weigh(
        self, served: ir.ServedVersion, nodes: Sequence[str], loads: LoadTable, now_s: float
    ) -> bool:
        """Weigh the nodes of a version anew; True when a weight differs."""
        name = served.assignment.name
        if served.balance != "least-loaded":
            self._weights.pop(name, None)
            return False
        utilization = {node: loads.utilization(node, name, now_s=now_s) for node in nodes}
        previous = self._weights.get(name, {})
        self._weights[name] = weigh(utilization, previous)
        moved = self._weights[name] != previous
        self.weight_changes += moved
        return moved

    def _update(self, sets: Mapping[str, tuple[Endpoint, ...]]) -> bool:
        changed = False
        for name, endpoints in sets.items():
            current = self._clusters.get(name)
            if current is None or current.endpoints != endpoints:
                self._clusters[name] = _Cluster(endpoints)
                changed = True
        return changed


def _some_of_each_pool(holders: Sequence[Holder]) -> list[Holder]:
    """Enough nodes to answer what any node can; each change of one is sent to every gateway."""
    by_pool: dict[str, list[Holder]] = {}
    for holder in sorted(holders, key=lambda holder: holder.draining):
        of_pool = by_pool.setdefault(holder.info.pool, [])
        if len(of_pool) < limits.NODES_PER_POOL:
            of_pool.append(holder)
    return [holder for of_pool in by_pool.values() for holder in of_pool]


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


def _health(holder: Holder, unready: frozenset[str]) -> Health:
    if holder.draining:
        return "draining"
    return "unhealthy" if holder.info.name in unready else "healthy"
