"""Which GPU nodes a local mesh has: a few for every pool, in the order of regions. Pure."""

from collections.abc import Collection, Sequence

import msgspec

from headrace import ir, limits

FIRST_ADDRESS = 1
"""Nodes live on 127.0.1.1, 127.0.1.2 and so on, as pods have an address each."""


class NodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU node: what it is called, where it belongs and the address it has to itself."""

    name: str
    pool: str
    region: str
    zone: str
    address: str


class TooManyNodesError(ValueError):
    """The mesh asks for more nodes than one machine is given."""


def nodes(mesh: ir.Mesh, *, per_pool: int, regions: Collection[str] = ()) -> tuple[NodePlace, ...]:
    """Nodes of every pool whose nodes register, in the order of regions; all regions by default.

    A region with one pool names its nodes ``<region>-<n>``, one with more ``<pool>-<n>``.
    """
    found: list[NodePlace] = []
    for region in mesh.regions:
        pools = [p for p in mesh.pools if p.region == region.name and p.registered]
        for pool in pools:
            prefix = region.name if len(pools) == 1 else pool.name
            found.extend(_pool(pool, prefix, per_pool=per_pool, taken=len(found)))
    if len(found) > limits.LOCAL_NODES:
        raise TooManyNodesError(
            f"{len(found)} nodes; one machine is given at most {limits.LOCAL_NODES}: "
            "lower --nodes-per-pool"
        )
    # Left out last, so that a node keeps its address whatever part of the mesh is started.
    return tuple(node for node in found if not regions or node.region in regions)


def gateways(mesh: ir.Mesh, *, regions: Collection[str] = ()) -> tuple[ir.Gateway, ...]:
    """Gateways of the regions; of all regions by default."""
    return tuple(
        gateway
        for region in mesh.regions
        for gateway in region.gateways
        if not regions or region.name in regions
    )


def held(mesh: ir.Mesh, pool: str) -> tuple[tuple[str, int], ...]:
    """Model versions that nodes of a pool are to hold."""
    return tuple((v.model, v.version) for v in mesh.versions if pool in v.pools)


def zone(mesh: ir.Mesh, region: str) -> str:
    """Zone in which the gateways of a region stand: its first."""
    return next(r.zones[0] for r in mesh.regions if r.name == region)


def _pool(pool: ir.Pool, prefix: str, *, per_pool: int, taken: int) -> Sequence[NodePlace]:
    return [
        NodePlace(
            name=f"{prefix}-{number}",
            pool=pool.name,
            region=pool.region,
            zone=pool.zone,
            address=f"127.0.1.{FIRST_ADDRESS + taken + number - 1}",
        )
        for number in range(1, per_pool + 1)
    ]
