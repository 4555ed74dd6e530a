"""Endpoints of a cluster. Built with upb, since they change many times a second."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from headrace.routing import priorities
from headrace_xds.translate import resources
from headrace_xds.translate.resources import Resource, resource

Health = Literal["healthy", "draining", "unhealthy"]

OVERPROVISIONING_PERCENT: Final = 140
"""Traffic leaves a region gradually once less than 1/1.4 = 71 % of its nodes are healthy."""
_HEALTH: Final = {
    "healthy": health_check_pb2.HEALTHY,
    "draining": health_check_pb2.DRAINING,
    "unhealthy": health_check_pb2.UNHEALTHY,
}


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that serves the cluster, as one region's gateways see it."""

    node: str
    address: str
    port: int
    region: str
    zone: str
    priority: int
    """0 in the gateway's own region, then in its failover order; no gaps are needed."""
    weight: int = 1
    health: Health = "healthy"


def load_assignment(cluster: str, members: Sequence[Member]) -> Resource:
    """Endpoints in an order that does not depend on that of the members.

    A cluster without members gets an empty assignment: an absent one would read as "not known yet",
    and its removal would drop the hosts of a live cluster.
    """
    assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name=cluster)
    assignment.policy.overprovisioning_factor.value = OVERPROVISIONING_PERCENT
    by_locality: dict[tuple[int, str, str], list[Member]] = defaultdict(list)
    for member in members:
        by_locality[member.priority, member.region, member.zone].append(member)
    dense = priorities(key[0] for key in by_locality)
    for (priority, region, zone), local in sorted(by_locality.items()):
        locality = assignment.endpoints.add(priority=dense[priority])
        locality.locality.region = region
        locality.locality.zone = zone
        for member in sorted(local, key=lambda member: member.node):
            endpoint = locality.lb_endpoints.add(health_status=_HEALTH[member.health])
            socket = endpoint.endpoint.address.socket_address
            socket.address = member.address
            socket.port_value = member.port
            endpoint.endpoint.hostname = member.node
            # Envoy rejects a weight of 0; a node that should get nothing is draining instead.
            endpoint.load_balancing_weight.value = max(1, member.weight)
    return resource(resources.ENDPOINTS, cluster, assignment.SerializeToString(deterministic=True))
