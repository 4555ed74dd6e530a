"""Which version gets a request: the pinned one, the only one, or a side of a split."""

from headrace import ir, names, routing
from headrace.names import Protocol
from headrace.refusals import Refusal, Refused
from headrace.why.explanation import DecidedBy, Side
from headrace.why.request import Request
from headrace.why.story import Story
from headrace.why.target import Target
from headrace.xxh64 import xxh64


def pinned(asked: Target, versions: list[ir.ServedVersion], story: Story) -> int:
    """Version that the request pins; Refused when the model has no such version."""
    assert asked.pin is not None
    for served in versions:
        if served.version == asked.pin:
            story.say(
                "version",
                f"{asked.pin}, which {asked.pin_from} pins: no split, no mirror",
                story.places.version(served.source, asked.pin),
            )
            return asked.pin
    have = ", ".join(str(served.version) for served in versions)
    message = f"{asked.model} has no version {asked.pin}; there is {have}"
    raise Refused(Refusal.MODEL_NOT_FOUND, message)


def split(request: Request, route: ir.Route, protocol: Protocol, story: Story) -> int | None:
    """Version on whose side the request falls; None where that is random."""
    arms = routing.sides(route)
    if not arms:
        raise Refused(Refusal.MODEL_NOT_FOUND, f"no side of {route.name} has a weight")
    sides = tuple(
        Side(
            version=arm.version,
            weight=arm.weight,
            cluster=names.cluster(route.model, arm.version, protocol),
        )
        for arm in arms
    )
    story.know(sides=sides)
    version, by, says = _fall(request, route, arms)
    places = story.places
    place = places.side(route.source, arms[0].version if version is None else version)
    story.say("version", says, place)
    story.know(decided_by=by)
    return version


def point(request: Request, header: str) -> int | None:
    """Envoy's hash of a sticky header: of its values in order; None where there are none."""
    values = sorted(value.encode(errors="replace") for value in request.values(header))
    hashed = 0
    for value in values:
        hashed = xxh64(value, hashed)
    return hashed if values else None


def _fall(
    request: Request, route: ir.Route, arms: tuple[ir.Arm, ...]
) -> tuple[int | None, DecidedBy, str]:
    if len(arms) == 1:
        return arms[0].version, "only", f"{arms[0].version}, which gets all of the route's traffic"
    total = sum(arm.weight for arm in arms)
    shares = ", ".join(f"{arm.weight / total:.2%} to {arm.version}" for arm in arms)
    header = route.sticky_header
    hashed = None if header is None else point(request, header)
    if hashed is None:
        why = "the route is not sticky" if header is None else f"the header {header} is absent"
        return None, "random", f"random ({why}): {shares}"
    place = hashed % total
    version = _on(place, arms)
    says = f"{version}: the hash of {header} is at {place} of {total} ({shares})"
    return version, "sticky", says


def _on(place: int, arms: tuple[ir.Arm, ...]) -> int:
    """Version of the side that a place lies on."""
    end = 0
    for arm in arms:
        end += arm.weight
        if place < end:
            return arm.version
    raise AssertionError("a place is less than the sum of the weights")
