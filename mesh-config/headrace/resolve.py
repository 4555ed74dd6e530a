"""Checked objects to the IR: aliases become versions, text becomes numbers, defaults become real.

Only for a configuration without errors: what ``analyze`` would refuse fails an assertion here.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import msgspec

from headrace import ir, limits
from headrace.assignment import Assignment, Batching, Tensor
from headrace.config import schema
from headrace.config.load import Loaded, Placed
from headrace.config.references import default_version, version_of
from headrace.config.runtime import RuntimeSpec
from headrace.memo import Memo
from headrace.units import parse_bytes, parse_duration_s

Width = tuple[int, int, str]
"""What routes are ordered by: the narrowest first."""


class _Unit(NamedTuple):
    """What a model and its routes mean; routes come with the key that they are ordered by."""

    versions: tuple[ir.ServedVersion, ...]
    routes: tuple[tuple[Width, ir.Route], ...]


def resolve(loaded: Loaded, memo: Memo | None = None) -> ir.Mesh:
    """IR of a configuration without errors; with ``memo``, parts of it are those of before."""
    kept = Memo() if memo is None else memo
    ((placed_mesh, mesh),) = loaded.each(schema.Mesh)
    routes = loaded.each(schema.Route)
    pools = loaded.each(schema.Pool)
    taken = {route.metadata.name for _, route in routes}
    by_model: dict[str, list[tuple[Placed, schema.Route]]] = defaultdict(list)
    for placed, route in routes:
        by_model[route.spec.model].append((placed, route))
    every_pool = kept.get("pools", tuple(pool for _, pool in pools), lambda: _names(pools))
    units = [
        _unit(placed, model, by_model[name], every_pool, is_taken=name in taken, memo=kept)
        for name, placed, model in sorted(
            ((placed.name, placed, model) for placed, model in loaded.each(schema.Model)),
            key=itemgetter(0),
        )
    ]
    made = sorted((pair for unit in units for pair in unit.routes), key=itemgetter(0))
    regions = kept.get("regions", (placed_mesh,), lambda: _regions(mesh))
    return ir.Mesh(
        name=mesh.metadata.name,
        orca_port=mesh.spec.orca_port,
        regions=regions,
        pools=tuple(
            kept.get(("pool", name), (pool,), partial(_pool, pool))
            for name, pool in sorted((pool.metadata.name, pool) for _, pool in pools)
        ),
        versions=tuple(version for unit in units for version in unit.versions),
        routes=tuple(route for _, route in made),
        tenants=tuple(
            kept.get(("tenant", tenant.metadata.name), (tenant,), partial(_tenant, tenant))
            for _, tenant in sorted(
                loaded.each(schema.Tenant), key=lambda pair: pair[1].metadata.name
            )
        ),
        runtime=_runtime(placed_mesh, mesh.spec.runtime),
    )


def _runtime(placed: Placed, spec: RuntimeSpec) -> ir.Runtime:
    given = msgspec.structs.asdict(spec)
    is_any = any(value is not None for value in given.values())
    return ir.Runtime(**given, source=_source(placed) if is_any else None)


def _names(pools: Sequence[tuple[Placed, schema.Pool]]) -> tuple[str, ...]:
    return tuple(sorted(pool.metadata.name for _, pool in pools))


def _unit(
    placed: Placed,
    model: schema.Model,
    routes: Sequence[tuple[Placed, schema.Route]],
    every_pool: tuple[str, ...],
    *,
    is_taken: bool,
    memo: Memo,
) -> _Unit:
    def build() -> _Unit:
        made = [_route(place, route, model) for place, route in routes]
        if not routes and default_version(model) is not None:
            made = [_implicit(placed, model, is_taken=is_taken)]
        versions = _versions(placed, model, [route for _, route in routes], every_pool)
        return _Unit(tuple(versions), tuple((_narrow_first(route), route) for route in made))

    inputs = (placed, every_pool, is_taken, *(place for place, _ in routes))
    return memo.get(("model", placed.name), inputs, build)


def weights(shares: Sequence[int], total: int = limits.SPLIT_TOTAL) -> tuple[int, ...]:
    """Shares scaled to a sum of exactly ``total``, by largest remainder; a share above 0 keeps
    at least 1, so that a canary of 1 in 100,000 still exists. ValueError when all are 0.
    """
    given = sum(shares)
    if given <= 0:
        raise ValueError("a split needs a weight above 0")
    scaled = [max(share * total // given, 1 if share else 0) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (-(shares[i] * total % given), i))
    missing = total - sum(scaled)
    for index in by_remainder[: max(missing, 0)]:
        scaled[index] += 1
    if missing < 0:
        largest = max(range(len(scaled)), key=scaled.__getitem__)
        scaled[largest] += missing
    return tuple(scaled)


def _regions(mesh: schema.Mesh) -> tuple[ir.Region, ...]:
    return tuple(sorted(map(_region, mesh.spec.regions), key=lambda region: region.name))


def _narrow_first(route: ir.Route) -> Width:
    """Routes that ask for more come first, because gateways take the first that matches: more
    headers, then exact hosts, then longer wildcards, then any host.
    """
    wildcards = [len(host) for host in route.hosts if host.startswith("*.")]
    width = 0 if route.hosts and not wildcards else _WIDEST - min(wildcards, default=0)
    return (-len(route.headers), width, route.name)


_WIDEST = 1_000
"""More than the length of any host."""


def _region(region: schema.RegionSpec) -> ir.Region:
    gateways = tuple(
        ir.Gateway(
            name=g.name,
            region=region.name,
            address=g.address,
            port=g.port,
            tls=ir.Tls(secret=g.tls.secret, client_ca=g.tls.client_ca) if g.tls else None,
        )
        for g in sorted(region.gateways, key=lambda gateway: gateway.name)
    )
    return ir.Region(
        name=region.name,
        zones=tuple(sorted(region.zones)),
        gateways=gateways,
        failover=region.failover,
    )


def _pool(pool: schema.Pool) -> ir.Pool:
    nodes = tuple(
        ir.GpuNode(
            name=node.name,
            pool=pool.metadata.name,
            address=node.address,
            http_port=node.http_port,
            grpc_port=node.grpc_port,
            orca_port=node.orca_port,
        )
        for node in sorted(pool.spec.discovery.nodes, key=lambda node: node.name)
    )
    return ir.Pool(
        name=pool.metadata.name,
        region=pool.spec.region,
        zone=pool.spec.zone,
        gpu_type=pool.spec.gpu.type,
        gpu_memory_bytes=parse_bytes(pool.spec.gpu.memory),
        registered=pool.spec.discovery.type == "registered",
        nodes=nodes,
    )


def _tenant(tenant: schema.Tenant) -> ir.Tenant:
    hashes = tuple(sorted({key.sha256 for key in tenant.spec.api_keys}))
    return ir.Tenant(name=tenant.metadata.name, tier=tenant.spec.tier, key_hashes=hashes)


def _versions(
    placed: Placed,
    model: schema.Model,
    routes: Sequence[schema.Route],
    every_pool: tuple[str, ...],
) -> list[ir.ServedVersion]:
    budgets = [route.spec.retry.budget_percent for route in routes]
    shadows: dict[int, int] = {}
    for mirror in (route.spec.mirror for route in routes if route.spec.mirror is not None):
        version = _target(mirror, model)
        shadows[version] = max(shadows.get(version, 0), mirror.max_requests)
    spec = model.spec
    return [
        ir.ServedVersion(
            model=model.metadata.name,
            version=version.version,
            pools=tuple(sorted(set(spec.placement.pools))) or every_pool,
            balance=spec.balance,
            max_requests=spec.breaker.max_requests,
            max_pending_requests=spec.breaker.max_pending_requests,
            retry_budget_percent=max(budgets, default=schema.RetrySpec().budget_percent),
            idempotent=spec.idempotent,
            shadow_max_requests=shadows.get(version.version),
            assignment=_assignment(model, version),
            source=_source(placed),
        )
        for version in sorted(spec.versions, key=lambda version: version.version)
    ]


def _assignment(model: schema.Model, version: schema.VersionSpec) -> Assignment:
    spec = model.spec
    return Assignment(
        model=model.metadata.name,
        version=version.version,
        executor=version.executor,
        artifact=version.artifact,
        inputs=_tensors(spec.inputs),
        outputs=_tensors(spec.outputs),
        batching=Batching(
            max_batch_size=spec.batching.max_batch_size,
            max_queue_delay_s=parse_duration_s(spec.batching.max_queue_delay),
            max_queue_size=spec.batching.max_queue_size,
            queue_timeout_s=parse_duration_s(spec.batching.queue_timeout),
        ),
        instances=version.instances,
        threads=version.threads,
        slo_s=parse_duration_s(spec.slo.latency),
        idempotent=spec.idempotent,
        parameters=dict(sorted(version.parameters.items())),
    )


def _tensors(tensors: Sequence[schema.TensorSpec]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=t.name, datatype=t.datatype, shape=t.shape) for t in tensors)


def _route(placed: Placed, route: schema.Route, model: schema.Model) -> ir.Route:
    spec = route.spec
    limit = spec.rate_limit
    timeout_s = spec.retry.per_try_timeout
    return ir.Route(
        name=route.metadata.name,
        model=spec.model,
        hosts=tuple(sorted({host.lower() for host in spec.match.hosts})),
        headers=tuple(sorted({(header.name, header.value) for header in spec.match.headers})),
        arms=_arms(spec.split, model),
        sticky_header=spec.sticky.header if spec.sticky else None,
        mirror=(
            ir.Mirror(version=_target(spec.mirror, model), percent=spec.mirror.percent)
            if spec.mirror
            else None
        ),
        timeout_s=parse_duration_s(spec.timeout),
        retry=ir.Retry(
            attempts=spec.retry.attempts,
            per_try_timeout_s=None if timeout_s is None else parse_duration_s(timeout_s),
        ),
        idempotent=model.spec.idempotent,
        rate_limit=(
            ir.RateLimit(
                requests=limit.requests,
                per_s=parse_duration_s(limit.per),
                burst=limit.burst if limit.burst is not None else limit.requests,
            )
            if limit
            else None
        ),
        source=_source(placed),
    )


def _implicit(placed: Placed, model: schema.Model, *, is_taken: bool) -> ir.Route:
    """Route of a model that no Route names, as an empty Route would make it."""
    name = model.metadata.name
    # No Route can have a name with a dot, so this one is free when the plain one is not.
    free = f"{name}.implicit" if is_taken else name
    route = schema.Route(
        api_version=schema.API_VERSION,
        metadata=schema.Metadata(name=free),
        spec=schema.RouteSpec(model=name),
    )
    return _route(placed, route, model)


def _arms(split: Sequence[schema.ArmSpec], model: schema.Model) -> tuple[ir.Arm, ...]:
    """Sides with traffic, in the order they are written; equal versions are one side."""
    if not split:
        version = default_version(model)
        assert version is not None, "a route without a split needs a default version"
        return (ir.Arm(version=version, weight=limits.SPLIT_TOTAL),)
    shares: dict[int, int] = {}
    for arm in split:
        version = _target(arm, model)
        shares[version] = shares.get(version, 0) + arm.weight
    given = {version: share for version, share in shares.items() if share}
    scaled = weights(list(given.values()))
    return tuple(
        ir.Arm(version=version, weight=weight)
        for version, weight in zip(given, scaled, strict=True)
    )


def _target(target: schema.ArmSpec | schema.MirrorSpec, model: schema.Model) -> int:
    version = version_of(target, model)
    assert version is not None, "a broken reference is an error of the configuration"
    return version


def _source(placed: Placed) -> ir.Source:
    return ir.Source(kind=placed.kind, name=placed.name, file=placed.file, line=placed.line)
