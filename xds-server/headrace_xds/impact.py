"""What an edit does to proxies: which resources are sent, and whether streams under way are cut.

Routes, clusters, endpoints and filters change under running requests, which Envoy finishes by what
they began with. A changed listener is drained: what runs longer than the drain time is cut.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from headrace.config.changes import What
from headrace_xds.control import Compiled
from headrace_xds.translate.resources import LISTENER, Resource
from headrace_xds.views import SHORT_TYPES

_ORDER: Final = {short: place for place, short in enumerate(SHORT_TYPES.values())}


class ResourceChange(NamedTuple):
    """A resource that a gateway is sent, or told to drop."""

    gateway: str
    type: str
    name: str
    what: What


class Impact(NamedTuple):
    """Every resource that changes, and the gateways that would cut long streams."""

    resources: tuple[ResourceChange, ...]
    drained: tuple[str, ...]


def impact(before: Compiled, after: Compiled) -> Impact:
    """What putting one configuration in place of another does."""
    found = sorted(_changes(before, after), key=lambda c: (c.gateway, _ORDER[c.type], c.name))
    drained = {
        change.gateway
        for change in found
        if change.type == SHORT_TYPES[LISTENER] and change.what != "added"
    }
    return Impact(tuple(found), tuple(sorted(drained)))


def _changes(before: Compiled, after: Compiled) -> Iterator[ResourceChange]:
    for gateway in sorted(before.resources.keys() | after.resources.keys()):
        old, new = before.resources.get(gateway, {}), after.resources.get(gateway, {})
        for type_url in old.keys() | new.keys():
            one, other = old.get(type_url, {}), new.get(type_url, {})
            for name, what in _differences(one, other):
                yield ResourceChange(gateway, SHORT_TYPES[type_url], name, what)


def _differences(
    before: Mapping[str, Resource], after: Mapping[str, Resource]
) -> Iterator[tuple[str, What]]:
    for name in before.keys() | after.keys():
        was, will = before.get(name), after.get(name)
        if was is None:
            yield name, "added"
        elif will is None:
            yield name, "removed"
        elif was.version != will.version:
            yield name, "changed"
