"""Proxies of one build that are served the same: what they are offered, and what they proved good.

Offered is what is wanted, but for names whose wanted version the build refuses: in their place
stands the last version that one of these proxies acknowledged, or nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from headrace_xds import references
from headrace_xds.publish.quarantine import OfName
from headrace_xds.translate.resources import CLUSTER, ROUTES, Resource

Resources = Mapping[str, Resource]
Held = Mapping[str, OfName]
"""Refusals of a type by name and version."""

_PROVEN_KEPT: Final = 2
"""Versions kept of a name: one that was taken here may be refused by the next proxy."""


class Audience:
    """What one group of proxies of one build is served."""

    def __init__(self, build: str, channel: str) -> None:
        self.build = build
        self.channel = channel
        """Name of the hub's group."""
        self._offered: dict[str, Resources] = {}
        self._unproven: dict[str, set[str]] = {}
        self._proven: dict[str, dict[str, tuple[Resource, ...]]] = {}
        self._instead: dict[str, frozenset[str]] = {}
        """Names whose last good version stands in place of a refused one, by type."""
        self.kept_clusters: frozenset[str] = frozenset()
        """Clusters that are not wanted any more and that a route table may still send to."""

    def __repr__(self) -> str:
        """One line for operators."""
        unproven = sum(map(len, self._unproven.values()))
        return f"<Audience {self.channel!r} unproven={unproven}>"

    def offered(self, type_url: str) -> Resources:
        """What is served of a type."""
        return self._offered.get(type_url, {})

    @property
    def everything(self) -> Mapping[str, Resources]:
        """What is served, by type."""
        return self._offered

    def offer(self, type_url: str, wanted: Resources, held: Held) -> Resources:
        """Take in what is wanted; returns what to serve."""
        offered = dict(wanted)
        proven = self._proven.setdefault(type_url, {})
        instead = set()
        for name in held.keys() & offered.keys():
            if offered[name].version in held[name]:
                good = self._last_good(type_url, name, held[name])
                if good is None:
                    del offered[name]
                else:
                    offered[name] = good
                    instead.add(name)
        self._instead[type_url] = frozenset(instead)
        if type_url == CLUSTER:
            self._keep_clusters(offered)
        self._offered[type_url] = offered
        for name in proven.keys() - wanted.keys() - offered.keys():
            del proven[name]
        self._unproven[type_url] = {
            name
            for name, resource in offered.items()
            if not (taken := proven.get(name)) or taken[0].version != resource.version
        }
        return offered

    def took(self, type_url: str, versions: Mapping[str, str]) -> frozenset[str]:
        """A proxy has these versions: names that had not been proven at what is offered."""
        unproven = self._unproven.get(type_url)
        if not unproven:
            return frozenset()
        offered = self._offered[type_url]
        fresh = frozenset(
            n for n in unproven & versions.keys() if offered[n].version == versions[n]
        )
        proven = self._proven[type_url]
        for name in fresh:
            resource = offered[name]
            others = [r for r in proven.get(name, ()) if r.version != resource.version]
            proven[name] = (resource, *others)[:_PROVEN_KEPT]
        unproven -= fresh
        return fresh

    def distrust(self, type_url: str, name: str, version: str) -> None:
        """A version was proven and is refused now: the one before it is the last good."""
        proven = self._proven.get(type_url, {})
        if name in proven:
            proven[name] = tuple(r for r in proven[name] if r.version != version)

    def prove(self, resource: Resource) -> None:
        """Know a version to be good from before the server started."""
        self._proven.setdefault(resource.type_url, {})[resource.name] = (resource,)

    def good(self, type_url: str, name: str) -> Resource | None:
        """The version that was proven last."""
        return next(iter(self._proven.get(type_url, {}).get(name, ())), None)

    def _last_good(self, type_url: str, name: str, held: OfName) -> Resource | None:
        proven = self._proven[type_url].get(name, ())
        return next((resource for resource in proven if resource.version not in held), None)

    @property
    def clusters_in_use(self) -> frozenset[str]:
        """Kept clusters of route tables that stand in place of refused ones."""
        if not self.kept_clusters:
            return frozenset()
        tables, instead = self.offered(ROUTES), self._instead.get(ROUTES, frozenset())
        return self.kept_clusters & _used(tables[name] for name in instead)

    def _keep_clusters(self, offered: dict[str, Resource]) -> None:
        """Go on serving clusters that are gone as long as a table sends to them.

        That is a table that is offered, or the one before it until the new one is proven: were that
        refused, the last good table needs what the edit removed together with it.
        """
        before = self.offered(CLUSTER)
        gone = before.keys() - offered.keys()
        kept = gone & self._sent_to() if gone else set()
        offered.update((name, before[name]) for name in kept)
        self.kept_clusters = frozenset(kept)

    def _sent_to(self) -> frozenset[str]:
        fallbacks = (self.good(ROUTES, name) for name in self._unproven.get(ROUTES, ()))
        tables = [*self.offered(ROUTES).values(), *(good for good in fallbacks if good)]
        return _used(tables)


def _used(routes: Iterable[Resource]) -> frozenset[str]:
    return frozenset().union(*map(references.clusters_of, routes))
