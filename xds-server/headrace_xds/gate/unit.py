"""What one run of Envoy checks: changed resources, and all that they need to stand."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from headrace import names
from headrace.config.problems import Problem
from headrace_xds.references import clusters_of
from headrace_xds.translate import resources
from headrace_xds.translate.resources import Resource

Resources = Mapping[str, Mapping[str, Resource]]

STAGES = (
    (resources.CLUSTER, resources.SECRET, resources.RUNTIME),
    (resources.LISTENER,),
    (resources.EXTENSION,),
    (resources.ROUTES,),
)
"""Types that Envoy is asked about, those first that others need to stand. Scopes are read with
their tables. Endpoints follow load many times a second and are not checked."""
_TYPES = (*(type_url for stage in STAGES for type_url in stage), resources.SCOPES)


def every(published: Resources) -> Iterator[Resource]:
    """Resources of the types that are checked."""
    for stage in STAGES:
        for type_url in stage:
            yield from published.get(type_url, {}).values()


def around(published: Resources, changed: Sequence[Resource]) -> dict[str, dict[str, Resource]]:
    """Changed resources with what they reference; a part of what is published.

    Filters and route tables are read through a listener; a table needs the clusters it names.
    """
    of_type: dict[str, set[str]] = {type_url: set() for type_url in _TYPES}
    for resource in changed:
        of_type[resource.type_url].add(resource.name)
    tables = of_type[resources.ROUTES]
    if tables or of_type[resources.LISTENER] or of_type[resources.EXTENSION]:
        tables.add(names.NODES_TABLE)
        of_type[resources.LISTENER] = {*published.get(resources.LISTENER, {})}
        of_type[resources.SECRET] = {*published.get(resources.SECRET, {})}
    for name in tables & published.get(resources.ROUTES, {}).keys():
        of_type[resources.CLUSTER] |= clusters_of(published[resources.ROUTES][name])
    of_type[resources.SCOPES] = tables
    return {
        type_url: {n: r for n, r in published.get(type_url, {}).items() if n in of_type[type_url]}
        for type_url in _TYPES
    }


def stages(changed: Sequence[Resource]) -> list[list[Resource]]:
    """Changed resources, those first that others need to stand."""
    return [[each for each in changed if each.type_url in stage] for stage in STAGES]


def stands_on(resource: Resource, refused: Collection[Resource]) -> bool:
    """Whether a resource cannot be judged while others are refused that it needs."""
    match resource.type_url:
        case resources.ROUTES:
            fronts = {resources.LISTENER, resources.EXTENSION}
            used = clusters_of(resource)
            return any(bad.type_url in fronts or bad.name in used for bad in refused)
        case resources.EXTENSION:
            return any(bad.type_url == resources.LISTENER for bad in refused)
        case _:
            return False


def dangling(published: Resources) -> Iterator[tuple[Resource, str]]:
    """Route tables that send to a cluster that is not published: Envoy would take them (R15)."""
    clusters = published.get(resources.CLUSTER, {})
    # Sets are compared one by one only where all of them together name a cluster too many.
    tables = published.get(resources.ROUTES, {}).values()
    if frozenset().union(*map(clusters_of, tables)) <= clusters.keys():
        return
    for table in published.get(resources.ROUTES, {}).values():
        for name in sorted(clusters_of(table) - clusters.keys()):
            yield table, f"unknown cluster {name!r}"


def problems(resource: Resource, text: str) -> tuple[Problem, ...]:
    """A refusal, reported on the objects that the resource is made from."""
    kind = resource.type_url.rpartition(".")[2]
    message = f"{kind} {resource.name}: {text}"
    if not resource.sources:
        return (_problem(message, "", 1, ""),)
    return tuple(
        _problem(message, source.file, source.line, f"{source.kind} {source.name}")
        for source in resource.sources
    )


def halves(changed: Sequence[Resource]) -> tuple[Sequence[Resource], Sequence[Resource]]:
    """Two parts to check one by one, to find what is to blame."""
    middle = len(changed) // 2
    return changed[:middle], changed[middle:]


def split(changed: Sequence[Resource], size: int) -> Iterable[Sequence[Resource]]:
    """Parts of at most ``size`` resources."""
    return [changed[start : start + size] for start in range(0, len(changed), size)]


def _problem(message: str, file: str, line: int, made_from: str) -> Problem:
    return Problem(
        code="HR0701",
        file=file or "mesh",
        line=line,
        column=1,
        path="$",
        message=message,
        object=made_from,
    )
