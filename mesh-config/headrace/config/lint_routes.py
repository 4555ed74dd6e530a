"""What is wrong, or odd, about routes: their matches, splits, mirrors and times."""

from collections.abc import Iterator

from headrace import headers
from headrace.config import schema
from headrace.config.load import Loaded, Placed
from headrace.config.problems import Problem, shown
from headrace.config.references import default_version, version_of
from headrace.units import parse_duration_s

_TOTALS = (100, 10_000)


def check(loaded: Loaded) -> Iterator[Problem]:
    """Every contradiction and every advice about routes."""
    models = {placed.name: model for placed, model in loaded.each(schema.Model)}
    yield from _twins(loaded)
    yield from _narrow(loaded)
    for placed, route in loaded.each(schema.Route):
        yield from _headers(placed, route)
        yield from _split(placed, route)
        yield from _times(placed, route)
        model = models.get(route.spec.model)
        if model is not None:
            yield from _versions(placed, route, model)
            yield from _patience(placed, route, model)


def _twins(loaded: Loaded) -> Iterator[Problem]:
    seen: dict[object, str] = {}
    for placed, route in loaded.each(schema.Route):
        match = route.spec.match
        wanted = frozenset((header.name, header.value) for header in match.headers)
        hosts = frozenset(host.lower() for host in match.hosts)
        other = seen.setdefault((route.spec.model, hosts, wanted), placed.name)
        if other != placed.name:
            message = f'route "{other}" matches the same requests; one would never be used'
            yield placed.problem("HR0207", ("spec", "match"), message)


def _narrow(loaded: Loaded) -> Iterator[Problem]:
    """Models whose callers all must send a header: the first route by a header takes away the one
    that the model had without any route. Hosts are left alone, since they part whole audiences.
    """
    routes: dict[str, list[tuple[Placed, schema.Route]]] = {}
    for placed, route in loaded.each(schema.Route):
        routes.setdefault(route.spec.model, []).append((placed, route))
    for model, found in routes.items():
        if all(route.spec.match.headers for _, route in found):
            message = f'requests for "{model}" without these headers are answered with 404'
            yield found[0][0].problem("HR0312", ("spec", "match", "headers"), message)


def _headers(placed: Placed, route: schema.Route) -> Iterator[Problem]:
    wanted: dict[str, str] = {}
    for index, header in enumerate(route.spec.match.headers):
        path = ("spec", "match", "headers", index)
        if wanted.setdefault(header.name, header.value) != header.value:
            first = shown(wanted[header.name])
            message = f'{header.name} cannot be both "{first}" and "{shown(header.value)}"'
            yield placed.problem("HR0213", (*path, "value"), message)
        if _is_removed(header.name):
            message = f"gateways remove {header.name} before they match: no request would do"
            yield placed.problem("HR0220", (*path, "name"), message)
    sticky = route.spec.sticky
    if sticky is not None and _is_removed(sticky.header):
        message = f"gateways remove {sticky.header}: the side would be random"
        yield placed.problem("HR0220", ("spec", "sticky", "header"), message)


def _is_removed(header: str) -> bool:
    return header in headers.STRIPPED or header.startswith(headers.INTERNAL_PREFIX)


def _split(placed: Placed, route: schema.Route) -> Iterator[Problem]:
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
    if route.spec.sticky is not None and len(split) < 2:
        yield placed.problem("HR0311", ("spec", "sticky"), "the route has one side only")


def _times(placed: Placed, route: schema.Route) -> Iterator[Problem]:
    timeout_s = parse_duration_s(route.spec.timeout)
    per_try = route.spec.retry.per_try_timeout
    if per_try is not None and parse_duration_s(per_try) > timeout_s:
        message = f"a try of {per_try} never ends within a timeout of {route.spec.timeout}"
        yield placed.problem("HR0216", ("spec", "retry", "perTryTimeout"), message)
    limit = route.spec.rate_limit
    if limit is not None and limit.burst is not None and limit.burst < limit.requests:
        message = f"a bucket of {limit.burst} cannot let {limit.requests} through per {limit.per}"
        yield placed.problem("HR0221", ("spec", "rateLimit", "burst"), message)


def _patience(placed: Placed, route: schema.Route, model: schema.Model) -> Iterator[Problem]:
    latency = model.spec.slo.latency
    if parse_duration_s(route.spec.timeout) < parse_duration_s(latency):
        message = f'gives up after {route.spec.timeout}; "{route.spec.model}" may take {latency}'
        yield placed.problem("HR0217", ("spec", "timeout"), message)


def _versions(placed: Placed, route: schema.Route, model: schema.Model) -> Iterator[Problem]:
    seen: dict[int | None, int] = {}
    for index, arm in enumerate(route.spec.split):
        version = version_of(arm, model)
        first = seen.setdefault(version, index)
        if version is not None and first != index:
            message = f"version {version} is side {first} of the split already"
            yield placed.problem("HR0218", ("spec", "split", index), message)
    mirror = route.spec.mirror
    if mirror is None:
        return
    targets = {version_of(arm, model) for arm in route.spec.split if arm.weight}
    if (targets or {default_version(model)}) == {version_of(mirror, model)}:
        message = "the mirror copies to the version that serves the request anyway"
        yield placed.problem("HR0211", ("spec", "mirror"), message)
