"""Which resources need which others. Read from the bytes, so that any translator may write them."""

import functools
from collections.abc import Iterator

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2

from headrace_xds.translate.resources import Resource


@functools.lru_cache(maxsize=8_192)
def endpoints_of(cluster: Resource) -> str | None:
    """Name of the endpoints a cluster takes over EDS, None when it takes none."""
    message = cluster_pb2.Cluster.FromString(cluster.body)
    if message.type != cluster_pb2.Cluster.EDS:
        return None
    service: str = message.eds_cluster_config.service_name
    return service or cluster.name


@functools.lru_cache(maxsize=8_192)
def clusters_of(routes: Resource) -> frozenset[str]:
    """Names of the clusters that a route configuration sends requests to.

    A route that takes its cluster from a header names none and waits for none: where that cluster
    is not there, the route's own answer says so.
    """
    message = route_pb2.RouteConfiguration.FromString(routes.body)
    found: set[str] = set()
    for mirror in message.request_mirror_policies:
        found.add(mirror.cluster)
    for host in message.virtual_hosts:
        found.update(mirror.cluster for mirror in host.request_mirror_policies)
        for route in host.routes:
            found.update(_of_action(route.route))
    return frozenset(found - {""})


def _of_action(action: route_components_pb2.RouteAction) -> Iterator[str]:
    yield action.cluster
    for arm in action.weighted_clusters.clusters:
        yield arm.name
    for mirror in action.request_mirror_policies:
        yield mirror.cluster
