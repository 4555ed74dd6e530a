"""Values that are right one by one and wrong together, and what a careful reader would ask."""

import ipaddress
from collections.abc import Iterator, Mapping

from headrace.config import lint_routes, schema
from headrace.config.load import Loaded, Placed
from headrace.config.problems import Problem
from headrace.config.references import Path, default_version, versions_of
from headrace.units import parse_duration_s

_DELAY_SHARE = 0.5
"""Part of the SLO that waiting for company may take before it is worth a warning."""
_ALL = 100


def check(loaded: Loaded) -> Iterator[Problem]:
    """Every contradiction and every advice."""
    yield from _meshes(loaded)
    for placed, mesh in loaded.each(schema.Mesh):
        yield from _regions(placed, mesh)
        yield from _gateways(placed, mesh)
        yield from _overrides(placed, mesh)
    yield from _pools(loaded)
    yield from _nodes(loaded)
    routed = {route.spec.model for _, route in loaded.each(schema.Route)}
    for placed, model in loaded.each(schema.Model):
        yield from _model(placed, model)
        yield from _default(placed, model, routed=placed.name in routed)
    yield from _reach(loaded)
    yield from lint_routes.check(loaded)
    yield from _keys(loaded)


def _meshes(loaded: Loaded) -> Iterator[Problem]:
    meshes = loaded.each(schema.Mesh)
    for placed, _ in meshes[1:]:
        first = meshes[0][0]
        message = f'there is a Mesh already: "{first.name}" in {first.file}:{first.line}'
        yield placed.problem("HR0201", ("kind",), message)
    if not meshes:
        file = loaded.files[0] if loaded.files else "-"
        message = "there is no Mesh object"
        yield Problem(code="HR0201", file=file, line=1, column=1, path="$", message=message)


def _regions(placed: Placed, mesh: schema.Mesh) -> Iterator[Problem]:
    names: set[str] = set()
    for index, region in enumerate(mesh.spec.regions):
        path: Path = ("spec", "regions", index)
        if region.name in names:
            message = f'region "{region.name}" is there already'
            yield placed.problem("HR0204", (*path, "name"), message)
        names.add(region.name)
        zones: set[str] = set()
        for place, zone in enumerate(region.zones):
            if zone in zones:
                message = f'zone "{zone}" is there already'
                yield placed.problem("HR0204", (*path, "zones", place), message)
            zones.add(zone)
        if region.name in region.failover:
            yield placed.problem("HR0209", (*path, "failover"), "a region cannot replace itself")
        if not region.gateways:
            yield placed.problem("HR0304", path, f'region "{region.name}" has no gateway')
        if not region.failover and len(mesh.spec.regions) > 1:
            yield placed.problem("HR0307", path, f'region "{region.name}" fails over to no other')


def _gateways(placed: Placed, mesh: schema.Mesh) -> Iterator[Problem]:
    names: set[str] = set()
    sockets: dict[tuple[str, int], str] = {}
    for index, region in enumerate(mesh.spec.regions):
        for place, gateway in enumerate(region.gateways):
            path: Path = ("spec", "regions", index, "gateways", place)
            if gateway.name in names:
                message = f'gateway "{gateway.name}" is there already'
                yield placed.problem("HR0204", (*path, "name"), message)
            names.add(gateway.name)
            is_open = ipaddress.ip_address(gateway.address).is_unspecified
            if is_open and gateway.tls is None:
                message = f'gateway "{gateway.name}" accepts callers of every network in the clear'
                yield placed.problem("HR0501", path, message)
            if is_open:
                # Gateways bound to every address are on machines of their own: no socket is shared.
                continue
            owner = sockets.setdefault((gateway.address, gateway.port), gateway.name)
            if gateway.port and owner != gateway.name:
                message = f'gateway "{owner}" listens on {gateway.address}:{gateway.port} too'
                yield placed.problem("HR0205", path, message)


def _overrides(placed: Placed, mesh: schema.Mesh) -> Iterator[Problem]:
    found = mesh.spec.runtime
    lifted = {
        "rateLimitPercent": (found.rate_limit_percent, "{} % of what is over a rate limit passes"),
        "retryPercent": (found.retry_percent, "{} % of the failures worth a retry get none"),
        "ejectionPercent": (found.ejection_percent, "{} % of the failing nodes stay in service"),
    }
    for field, (percent, says) in lifted.items():
        if percent is not None and percent < _ALL:
            message = says.format(_ALL - percent)
            yield placed.problem("HR0313", ("spec", "runtime", field), message)


def _pools(loaded: Loaded) -> Iterator[Problem]:
    placements = [model.spec.placement.pools for _, model in loaded.each(schema.Model)]
    used = {name for pools in placements for name in pools}
    are_all_placed = bool(placements) and all(placements)
    for placed, pool in loaded.each(schema.Pool):
        is_static = pool.spec.discovery.type == "static"
        if is_static != bool(pool.spec.discovery.nodes):
            message = "it lists no nodes" if is_static else "only static discovery lists nodes"
            yield placed.problem("HR0208", ("spec", "discovery"), message)
        if are_all_placed and placed.name not in used:
            yield placed.problem("HR0308", ("metadata", "name"), "no model is placed on this pool")


def _nodes(loaded: Loaded) -> Iterator[Problem]:
    orca_ports = {mesh.spec.orca_port for _, mesh in loaded.each(schema.Mesh)}
    pools: dict[str, str] = {}
    sockets: dict[tuple[str, int], str] = {}
    for placed, index, node in _static(loaded):
        path: Path = ("spec", "discovery", "nodes", index)
        if node.name in pools:
            message = f'node "{node.name}" is in pool "{pools[node.name]}" already'
            yield placed.problem("HR0204", (*path, "name"), message)
        pools.setdefault(node.name, placed.name)
        if orca_ports and node.orca_port not in orca_ports:
            message = f"gateways read load reports on port {min(orca_ports)} of every node"
            yield placed.problem("HR0219", (*path, "orcaPort"), message)
        ports = {"httpPort": node.http_port, "grpcPort": node.grpc_port, "orcaPort": node.orca_port}
        uses = {field: f"{field} of {node.name}" for field in ports}
        owners = {f: sockets.setdefault((node.address, port), uses[f]) for f, port in ports.items()}
        for field in [f for f in ports if owners[f] != uses[f]][:1]:
            message = f"{node.address}:{ports[field]} is {owners[field]} already"
            yield placed.problem("HR0214", (*path, field), message)


def _static(loaded: Loaded) -> Iterator[tuple[Placed, int, schema.StaticNode]]:
    for placed, pool in loaded.each(schema.Pool):
        for index, node in enumerate(pool.spec.discovery.nodes):
            yield placed, index, node


def _model(placed: Placed, model: schema.Model) -> Iterator[Problem]:
    versions = versions_of(model)
    for index, version in enumerate(versions):
        if version in versions[:index]:
            path = ("spec", "versions", index, "version")
            yield placed.problem("HR0212", path, f"version {version} is there already")
    for part, tensors in (("inputs", model.spec.inputs), ("outputs", model.spec.outputs)):
        names: set[str] = set()
        for index, tensor in enumerate(tensors):
            if tensor.name in names:
                message = f'"{tensor.name}" is there already'
                yield placed.problem("HR0204", ("spec", part, index, "name"), message)
            names.add(tensor.name)
            if 0 in tensor.shape:
                message = f'"{tensor.name}" has a dimension of 0: it could hold nothing'
                yield placed.problem("HR0215", ("spec", part, index, "shape"), message)
    delay, latency = model.spec.batching.max_queue_delay, model.spec.slo.latency
    if parse_duration_s(delay) > parse_duration_s(latency) * _DELAY_SHARE:
        message = f"a request may wait {delay} for company, within an SLO of {latency}"
        yield placed.problem("HR0303", ("spec", "batching", "maxQueueDelay"), message)


def _default(placed: Placed, model: schema.Model, *, routed: bool) -> Iterator[Problem]:
    if routed:
        return
    if default_version(model) is None:
        message = "without a route and an alias stable, only pinned versions can be called"
        yield placed.problem("HR0306", ("spec", "versions"), message)
    else:
        yield placed.problem("HR0301", ("metadata", "name"), "no route names this model")


def _reach(loaded: Loaded) -> Iterator[Problem]:
    """Models that callers of some gateway get no answer from, whatever is up."""
    homes = {placed.name: pool.spec.region for placed, pool in loaded.each(schema.Pool)}
    reached: Mapping[str, set[str]] = {
        region.name: {region.name, *region.failover}
        for _, mesh in loaded.each(schema.Mesh)
        for region in mesh.spec.regions
        if region.gateways
    }
    everywhere = set(homes.values())
    for placed, model in loaded.each(schema.Model):
        pools = model.spec.placement.pools
        held = {homes[pool] for pool in pools if pool in homes} if pools else everywhere
        lost = sorted(name for name, regions in reached.items() if not regions & held)
        if lost:
            message = f"gateways of {', '.join(lost)} reach no pool that the model is placed on"
            yield placed.problem("HR0310", ("spec", "placement", "pools"), message)


def _keys(loaded: Loaded) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for placed, tenant in loaded.each(schema.Tenant):
        for index, key in enumerate(tenant.spec.api_keys):
            owner = owners.setdefault(key.sha256, placed.name)
            if owner != placed.name:
                path = ("spec", "apiKeys", index, "sha256")
                yield placed.problem("HR0206", path, f'tenant "{owner}" has this key too')
        if not tenant.spec.api_keys:
            yield placed.problem("HR0302", ("spec",), "no API key: nobody can call as this tenant")
    if loaded.objects and not owners:
        message = "no tenant has a key: every inference will be refused"
        yield loaded.objects[0].problem("HR0502", (), message)
