"""From the IR to what Envoy 1.40 takes: pure functions, every fragment encoded once."""

from headrace import ir
from headrace_xds.translate import clusters, filters, listeners, resources, route_table
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import Resource

Resources = dict[str, dict[str, Resource]]


def translate(mesh: ir.Mesh, gateway: ir.Gateway, cache: FragmentCache) -> Resources:
    """Everything one gateway gets but endpoints, by type URL and name.

    Only the listener differs between gateways; the rest comes out of the cache for all but one.
    """
    return {
        resources.CLUSTER: _by_name(_clusters(mesh, cache)),
        resources.EXTENSION: _by_name(
            [
                filters.authenticate(mesh.tenants, cache),
                filters.model(cache),
                filters.rate_limit(mesh.routes, cache),
            ]
        ),
        resources.LISTENER: _by_name([listeners.listener(gateway, cache)]),
        resources.ROUTES: _by_name([route_table.route_table(mesh, cache)]),
    }


def _clusters(mesh: ir.Mesh, cache: FragmentCache) -> list[Resource]:
    made = [clusters.node_cluster(protocol, cache) for protocol in clusters.PROTOCOLS]
    for served in mesh.versions:
        for protocol in clusters.PROTOCOLS:
            made.append(clusters.model_cluster(served, protocol, mesh.orca_port, cache))
            if served.shadow_max_requests is not None:
                made.append(
                    clusters.shadow_cluster(served, protocol, served.shadow_max_requests, cache)
                )
    return made


def _by_name(made: list[Resource]) -> dict[str, Resource]:
    return {resource.name: resource for resource in made}
