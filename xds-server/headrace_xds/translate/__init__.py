"""From the IR to what Envoy 1.40 takes: pure functions, every fragment encoded once."""

from functools import partial

from headrace import ir
from headrace_xds.translate import clusters, filters, listeners, resources, route_table, runtime
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import Resource

Resources = dict[str, dict[str, Resource]]


def translate(mesh: ir.Mesh, gateway: ir.Gateway, cache: FragmentCache) -> Resources:
    """Everything one gateway gets but endpoints, by type URL and name.

    Only the listener differs between gateways; the rest is the same objects for all of them.
    """
    shared = cache.memo.get("shared", (mesh,), lambda: _shared(mesh, cache))
    return {**shared, resources.LISTENER: _by_name([listeners.listener(gateway, cache)])}


def _shared(mesh: ir.Mesh, cache: FragmentCache) -> Resources:
    return {
        resources.CLUSTER: _by_name(_clusters(mesh, cache)),
        resources.EXTENSION: _by_name(
            [
                filters.authenticate(mesh.tenants, cache),
                filters.model(cache),
                filters.rate_limit(mesh.routes, cache),
            ]
        ),
        resources.RUNTIME: _by_name([runtime.layer(mesh.runtime, cache)]),
        resources.SCOPES: _by_name(route_table.scopes(mesh, cache)),
        resources.ROUTES: _by_name(route_table.route_tables(mesh, cache)),
    }


def _clusters(mesh: ir.Mesh, cache: FragmentCache) -> list[Resource]:
    made = [clusters.node_cluster(protocol, cache) for protocol in clusters.PROTOCOLS]
    port = mesh.orca_port
    for served in mesh.versions:
        build = partial(_clusters_of, served, port, cache)
        slot = ("clusters", served.model, served.version)
        made += cache.memo.get(slot, (served, port), build)
    return made


def _clusters_of(
    served: ir.ServedVersion, orca_port: int, cache: FragmentCache
) -> tuple[Resource, ...]:
    made = []
    for protocol in clusters.PROTOCOLS:
        made.append(clusters.model_cluster(served, protocol, orca_port, cache))
        if (copies := served.shadow_max_requests) is not None:
            made.append(clusters.shadow_cluster(served, protocol, copies, cache))
    return tuple(made)


def _by_name(made: list[Resource]) -> dict[str, Resource]:
    return {resource.name: resource for resource in made}
