"""Names that objects give for other objects: each must exist."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from headrace.config import schema
from headrace.config.load import Loaded, Placed
from headrace.config.problems import Problem, near

Path = tuple[str | int, ...]


def check(loaded: Loaded) -> Iterator[Problem]:
    """Every reference to something that is not there."""
    models = {placed.name: model for placed, model in loaded.each(schema.Model)}
    pools = {placed.name for placed, _ in loaded.each(schema.Pool)}
    regions = {
        region.name: region for _, mesh in loaded.each(schema.Mesh) for region in mesh.spec.regions
    }
    for placed in loaded.objects:
        match placed.object:
            case schema.Mesh():
                yield from _failovers(placed, placed.object, regions)
            case schema.Pool():
                yield from _place(placed, placed.object, regions)
            case schema.Model():
                yield from _model(placed, placed.object, pools)
            case schema.Route():
                yield from _route(placed, placed.object, models)


def _failovers(
    placed: Placed, mesh: schema.Mesh, regions: Mapping[str, schema.RegionSpec]
) -> Iterator[Problem]:
    for index, region in enumerate(mesh.spec.regions):
        for place, name in enumerate(region.failover):
            path: Path = ("spec", "regions", index, "failover", place)
            if name not in regions:
                yield _absent(placed, "HR0103", path, name, regions)


def _place(
    placed: Placed, pool: schema.Pool, regions: Mapping[str, schema.RegionSpec]
) -> Iterator[Problem]:
    region = regions.get(pool.spec.region)
    if region is None:
        yield _absent(placed, "HR0103", ("spec", "region"), pool.spec.region, regions)
    elif pool.spec.zone not in region.zones:
        yield _absent(placed, "HR0104", ("spec", "zone"), pool.spec.zone, region.zones)


def _model(placed: Placed, model: schema.Model, pools: Collection[str]) -> Iterator[Problem]:
    for index, pool in enumerate(model.spec.placement.pools):
        if pool not in pools:
            yield _absent(placed, "HR0101", ("spec", "placement", "pools", index), pool, pools)
    versions = versions_of(model)
    for alias, version in model.spec.aliases.items():
        if version not in versions:
            yield _no_version(placed, ("spec", "aliases", alias), version, versions)


def _route(
    placed: Placed, route: schema.Route, models: Mapping[str, schema.Model]
) -> Iterator[Problem]:
    model = models.get(route.spec.model)
    if model is None:
        yield _absent(placed, "HR0102", ("spec", "model"), route.spec.model, models)
        return
    for index, arm in enumerate(route.spec.split):
        yield from _target(placed, ("spec", "split", index), arm, model)
    if route.spec.mirror is not None:
        yield from _target(placed, ("spec", "mirror"), route.spec.mirror, model)
    if not route.spec.split and default_version(model) is None:
        message = f'model "{model.metadata.name}" has no alias stable; give the route a split'
        yield placed.problem("HR0105", ("spec",), message)


def _target(
    placed: Placed, path: Path, target: schema.ArmSpec | schema.MirrorSpec, model: schema.Model
) -> Iterator[Problem]:
    if (target.version is None) == (target.alias is None):
        given = "neither is given" if target.alias is None else "both are given"
        yield placed.problem("HR0202", path, f"give either version or alias; {given}")
    elif target.alias is not None and target.alias not in model.spec.aliases:
        yield _absent(placed, "HR0105", (*path, "alias"), target.alias, model.spec.aliases)
    elif target.version is not None and target.version not in versions_of(model):
        yield _no_version(placed, (*path, "version"), target.version, versions_of(model))


def versions_of(model: schema.Model) -> list[int]:
    """Numbers of a model's versions."""
    return [version.version for version in model.spec.versions]


def default_version(model: schema.Model) -> int | None:
    """Version that requests reach without a split: the alias stable, else the only one."""
    versions = versions_of(model)
    return model.spec.aliases.get("stable", versions[0] if len(versions) == 1 else None)


def version_of(target: schema.ArmSpec | schema.MirrorSpec, model: schema.Model) -> int | None:
    """Version that an arm or a mirror means; None when its alias is unknown."""
    return target.version if target.alias is None else model.spec.aliases.get(target.alias)


_NOUNS = {
    "HR0101": "pool",
    "HR0102": "model",
    "HR0103": "region",
    "HR0104": "zone",
    "HR0105": "alias",
}


def _absent(placed: Placed, code: str, path: Path, name: str, known: Iterable[str]) -> Problem:
    message = f'referenced {_NOUNS[code]} not found: "{name}"{near(name, known)}'
    return placed.problem(code, path, message)


def _no_version(placed: Placed, path: Path, version: int, known: Sequence[int]) -> Problem:
    have = ", ".join(str(number) for number in sorted(set(known))[:_LISTED])
    message = f"referenced version not found: {version}; there is {have}"
    return placed.problem("HR0106", path, message + (", …" if len(known) > _LISTED else ""))


_LISTED = 20
