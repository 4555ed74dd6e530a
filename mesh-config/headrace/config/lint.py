"""Values that are right one by one and wrong together, and what a careful reader would ask."""

from collections.abc import Iterator

from headrace.config import schema
from headrace.config.load import Loaded, Placed
from headrace.config.problems import Problem
from headrace.config.references import default_version, versions_of
from headrace.units import parse_duration_s

_TOTALS = (100, 10_000)
_DELAY_SHARE = 0.5
"""Part of the SLO that waiting for company may take before it is worth a warning."""


def check(loaded: Loaded) -> Iterator[Problem]:
    """Every contradiction and every advice."""
    yield from _meshes(loaded)
    yield from _keys(loaded)
    yield from _matches(loaded)
    routed = {p.object.spec.model for p in loaded.objects if isinstance(p.object, schema.Route)}
    models = {p.name: p.object for p in loaded.of(schema.Model)}
    for placed in loaded.objects:
        match placed.object:
            case schema.Mesh():
                yield from _regions(placed, placed.object)
            case schema.Pool():
                yield from _pool(placed, placed.object, loaded)
            case schema.Model():
                yield from _model(placed, placed.object, routed=placed.name in routed)
            case schema.Route():
                yield from _route(placed, placed.object, models.get(placed.object.spec.model))


def _meshes(loaded: Loaded) -> Iterator[Problem]:
    meshes = loaded.of(schema.Mesh)
    for placed in meshes[1:]:
        message = f'there is a Mesh already: "{meshes[0].name}" in {meshes[0].file}'
        yield placed.problem("HR0201", ("kind",), message)
    if not meshes:
        file = loaded.objects[0].file if loaded.objects else "-"
        yield Problem(
            code="HR0201", file=file, line=1, column=1, path="$", message="there is no Mesh object"
        )


def _keys(loaded: Loaded) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    tenants = loaded.of(schema.Tenant)
    for placed in tenants:
        assert isinstance(placed.object, schema.Tenant)
        for index, key in enumerate(placed.object.spec.api_keys):
            owner = owners.setdefault(key.sha256, placed.name)
            if owner != placed.name:
                path = ("spec", "apiKeys", index, "sha256")
                yield placed.problem("HR0206", path, f'tenant "{owner}" has this key too')
        if not placed.object.spec.api_keys:
            yield placed.problem("HR0302", ("spec",), "no API key: nobody can call as this tenant")
    if loaded.objects and not owners:
        first = loaded.objects[0]
        yield first.problem("HR0502", (), "no tenant has a key: every inference will be refused")


def _matches(loaded: Loaded) -> Iterator[Problem]:
    seen: dict[object, str] = {}
    for placed in loaded.of(schema.Route):
        assert isinstance(placed.object, schema.Route)
        match = placed.object.spec.match
        headers = frozenset((header.name, header.value) for header in match.headers)
        key = (placed.object.spec.model, frozenset(match.hosts), headers)
        other = seen.setdefault(key, placed.name)
        if other != placed.name:
            message = f'route "{other}" matches the same requests; one would never be used'
            yield placed.problem("HR0207", ("spec", "match"), message)


def _regions(placed: Placed, mesh: schema.Mesh) -> Iterator[Problem]:
    names: set[str] = set()
    gateways: set[str] = set()
    sockets: dict[tuple[str, int], str] = {}
    for index, region in enumerate(mesh.spec.regions):
        path: tuple[str | int, ...] = ("spec", "regions", index)
        if region.name in names:
            yield placed.problem(
                "HR0204", (*path, "name"), f'region "{region.name}" is there twice'
            )
        names.add(region.name)
        if region.name in region.failover:
            yield placed.problem("HR0209", (*path, "failover"), "a region cannot replace itself")
        if not region.gateways:
            yield placed.problem("HR0304", path, f'region "{region.name}" has no gateway')
        if not region.failover and len(mesh.spec.regions) > 1:
            yield placed.problem("HR0307", path, f'region "{region.name}" fails over to no other')
        for place, gateway in enumerate(region.gateways):
            spot = (*path, "gateways", place)
            if gateway.name in gateways:
                yield placed.problem("HR0204", spot, f'gateway "{gateway.name}" is there twice')
            gateways.add(gateway.name)
            socket = (gateway.address, gateway.port)
            owner = sockets.setdefault(socket, gateway.name)
            if gateway.port and owner != gateway.name:
                message = f'gateway "{owner}" listens on {gateway.address}:{gateway.port} too'
                yield placed.problem("HR0205", spot, message)
            if gateway.address in {"0.0.0.0", "::"}:  # noqa: S104 - it is looked for, not bound
                message = f'gateway "{gateway.name}" accepts callers of every network in the clear'
                yield placed.problem("HR0501", spot, message)


def _pool(placed: Placed, pool: schema.Pool, loaded: Loaded) -> Iterator[Problem]:
    static = pool.spec.discovery.type == "static"
    if static != bool(pool.spec.discovery.nodes):
        message = "static discovery lists no nodes" if static else "registered nodes are listed"
        yield placed.problem("HR0208", ("spec", "discovery"), message)
    models = [p.object for p in loaded.of(schema.Model) if isinstance(p.object, schema.Model)]
    used = any(not m.spec.placement.pools or placed.name in m.spec.placement.pools for m in models)
    if models and not used:
        yield placed.problem("HR0308", ("metadata", "name"), "no model is placed on this pool")


def _model(placed: Placed, model: schema.Model, *, routed: bool) -> Iterator[Problem]:
    versions = versions_of(model)
    for index, version in enumerate(versions):
        if version in versions[:index]:
            path = ("spec", "versions", index, "version")
            yield placed.problem("HR0212", path, f"version {version} is there already")
    for part in ("inputs", "outputs"):
        names = [tensor.name for tensor in getattr(model.spec, part)]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield placed.problem("HR0204", ("spec", part, index), f'"{name}" is there twice')
    if not routed:
        if default_version(model) is None:
            message = "without a route and an alias stable, only pinned versions can be called"
            yield placed.problem("HR0306", ("spec", "versions"), message)
        else:
            yield placed.problem("HR0301", ("metadata", "name"), "no route names this model")
    delay_s = parse_duration_s(model.spec.batching.max_queue_delay)
    slo_s = parse_duration_s(model.spec.slo.latency)
    if delay_s > slo_s * _DELAY_SHARE:
        message = f"waits up to {delay_s:g} s for company within an SLO of {slo_s:g} s"
        yield placed.problem("HR0303", ("spec", "batching", "maxQueueDelay"), message)


def _route(placed: Placed, route: schema.Route, model: schema.Object | None) -> Iterator[Problem]:
    split = route.spec.split
    total = sum(arm.weight for arm in split)
    if split and total == 0:
        yield placed.problem("HR0203", ("spec", "split"), "every weight is 0")
    elif len(split) > 1 and total not in _TOTALS:
        message = f"weights add up to {total}, not 100; they are treated as ratios"
        yield placed.problem("HR0210", ("spec", "split"), message)
    aliases = [arm.alias for arm in split]
    if "stable" in aliases and "canary" in aliases[: aliases.index("stable")]:
        yield placed.problem("HR0305", ("spec", "split"), "canary stands before stable")
    if isinstance(model, schema.Model) and route.spec.mirror is not None:
        yield from _mirror(placed, route, model)


def _mirror(placed: Placed, route: schema.Route, model: schema.Model) -> Iterator[Problem]:
    mirror = route.spec.mirror
    assert mirror is not None
    targets = {_version(arm, model) for arm in route.spec.split if arm.weight}
    targets = targets or {default_version(model)}
    if targets == {_version(mirror, model)}:
        message = "the mirror copies to the version that serves the request anyway"
        yield placed.problem("HR0211", ("spec", "mirror"), message)


def _version(target: schema.ArmSpec | schema.MirrorSpec, model: schema.Model) -> int | None:
    return target.version if target.alias is None else model.spec.aliases.get(target.alias)
