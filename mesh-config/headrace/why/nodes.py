"""Which nodes may answer: region by region in the order in which a gateway uses them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace import ir, routing
from headrace.names import Protocol
from headrace.why.explanation import Endpoint, Priority
from headrace.why.story import Story

Endpoints = Mapping[str, Sequence[Endpoint]]
"""Endpoints by cluster, as the control server knows them."""


class Destination(NamedTuple):
    """A cluster, and the pools that its nodes may be in."""

    cluster: str
    protocol: Protocol
    pools: Sequence[str]


def tell(
    mesh: ir.Mesh,
    region: ir.Region | None,
    to: Destination,
    known: Endpoints | None,
    story: Story,
) -> tuple[Priority, ...]:
    """Priorities of a cluster. Without known endpoints, those of static pools alone."""
    if region is None:
        story.say("nodes", "unknown: the mesh has no gateway")
        return ()
    ranks = routing.ranks(region)
    usable = [pool for pool in mesh.pools if pool.name in to.pools and pool.region in ranks]
    found = _static(usable, to.protocol) if known is None else known.get(to.cluster, ())
    by_pool = {pool.name: pool for pool in usable}
    present = [endpoint for endpoint in found if endpoint.pool in by_pool]
    # Where nothing is known of nodes, every region that has a pool may have some.
    counted = present if known is not None else usable
    filled = {
        ranks[by_pool[each.pool if isinstance(each, Endpoint) else each.name].region]
        for each in counted
    }
    priorities = routing.priorities(filled)
    made = tuple(
        Priority(
            priority=priorities[ranks[name]],
            region=name,
            pools=tuple(pool.name for pool in usable if pool.region == name),
            endpoints=tuple(each for each in present if by_pool[each.pool].region == name),
        )
        for name in sorted(ranks, key=ranks.__getitem__)
        if ranks[name] in priorities
    )
    for each in made:
        _say(each, region, mesh, story, is_known=known is not None)
    if not made:
        story.say("nodes", "none: requests are refused as not_ready")
    return made


def _static(pools: Sequence[ir.Pool], protocol: Protocol) -> list[Endpoint]:
    return [
        Endpoint(
            node=node.name,
            pool=pool.name,
            address=node.address,
            port=node.http_port if protocol == "http" else node.grpc_port,
        )
        for pool in pools
        for node in pool.nodes
    ]


def _say(
    found: Priority, region: ir.Region, mesh: ir.Mesh, story: Story, *, is_known: bool
) -> None:
    own = found.region == region.name
    place = story.places.region(mesh.name, region.name, *(() if own else ("failover",)))
    if found.endpoints:
        nodes = ", ".join(map(_words, found.endpoints))
    else:
        nodes = "none" if is_known else "those that register"
    when = "" if own else ", when too few before are healthy"
    says = f"priority {found.priority}: region {found.region}{when}: {nodes}"
    story.say("nodes", f"{says} (pools {', '.join(found.pools)})", place)


def _words(endpoint: Endpoint) -> str:
    weight = f" weight {endpoint.weight}" if endpoint.weight != 1 else ""
    health = f" {endpoint.health}" if endpoint.health != "healthy" else ""
    return f"{endpoint.node} {endpoint.address}:{endpoint.port}{weight}{health}"
