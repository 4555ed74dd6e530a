"""Which route takes a request, and why those before it do not."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from headrace import ir, routing
from headrace.config.problems import near
from headrace.refusals import Refusal, Refused
from headrace.why.explanation import Step
from headrace.why.places import Places
from headrace.why.request import Request
from headrace.why.target import Target


class Chosen(NamedTuple):
    """Route that takes the request, None for a pin that no route takes, and all that were asked."""

    route: ir.Route | None
    asked: tuple[Step, ...]


def versions_of(mesh: ir.Mesh, model: str) -> list[ir.ServedVersion]:
    """Versions of a model; Refused when there is no such model."""
    found = [served for served in mesh.versions if served.model == model]
    if not found:
        known = {served.model for served in mesh.versions}
        raise Refused(Refusal.MODEL_NOT_FOUND, f'there is no model "{model}"{near(model, known)}')
    return found


def choose(request: Request, asked: Target, mesh: ir.Mesh, places: Places) -> Chosen:
    """First route of the model that takes the request; Refused when none does."""
    if request.kind != "http" and not request.is_call:
        kind = request.get("content-type")
        raise Refused(Refusal.MODEL_NOT_FOUND, f"routes take no calls of the type {kind}")
    routes = [route for route in mesh.routes if route.model == asked.model]
    steps = []
    for route in routes:
        misses = _misses(request, route, places)
        steps.append(_step(route, misses, places))
        if not misses:
            return Chosen(route, tuple(steps))
    if asked.pin is not None and routing.reaches_pins_alone(routes):
        return Chosen(None, tuple(steps))
    raise NoRouteError(asked.model, steps)


class NoRouteError(Refused):
    """No route takes the request; ``asked`` are all that the model has."""

    def __init__(self, model: str, asked: Sequence[Step]) -> None:
        message = f'no route of "{model}" takes this request' if asked else f"{model} has no route"
        super().__init__(Refusal.MODEL_NOT_FOUND, message)
        self.asked = tuple(asked)


def _step(route: ir.Route, misses: Sequence[Step], places: Places) -> Step:
    if misses:
        return Step(
            topic=route.name,
            says=f"does not take it: {'; '.join(miss.says for miss in misses)}",
            place=misses[0].place,
        )
    wanted = [f"host {', '.join(route.hosts)}"] if route.hosts else []
    wanted += [f"{name}: {value}" for name, value in route.headers]
    says = f"takes it: {' and '.join(wanted)}" if wanted else "takes every request of the model"
    return Step(topic=route.name, says=says, place=places.at(route.source))


def _misses(request: Request, route: ir.Route, places: Places) -> list[Step]:
    """What the route asks for and the request does not have."""
    found = []
    if route.hosts and not re.fullmatch(routing.host_pattern(route.hosts), request.host):
        place = places.at(route.source, "spec", "match", "hosts")
        says = f'host "{request.host}" is none of {", ".join(route.hosts)}'
        found.append(Step(topic="host", says=says, place=place))
    for name, value in route.headers:
        # One of them is enough, where a header is given more than once.
        given = request.values(name)
        if value not in given:
            has = f'is "{", ".join(given)}"' if given else "is absent"
            place = places.header(route.source, (name, value))
            says = f'header {name} {has}, not "{value}"'
            found.append(Step(topic="header", says=says, place=place))
    return found
