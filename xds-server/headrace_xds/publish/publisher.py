"""Between the control server's decisions and the hub: who is served which version of what.

``Control`` says what a group of proxies is to have. Here it is served to each build of the group,
less what that build refused, and after the canary where there is one. No I/O and no clock.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from headrace import limits, names
from headrace_xds import inner_name
from headrace_xds.fleet import Fleet, Proxy
from headrace_xds.messages import NodeInfo
from headrace_xds.publish.audience import Audience
from headrace_xds.publish.canary import STAGED, Canary, digest
from headrace_xds.publish.kept import Kept, goods
from headrace_xds.publish.quarantine import Quarantine, Refusal
from headrace_xds.translate.resources import CLUSTER, ROUTES, Resource

Resources = Mapping[str, Resource]

OTHER_BUILDS: Final = "other builds"
"""Build of proxies that are of more builds than are told apart."""
_CANARY: Final = "canary"

log = logging.getLogger(__name__)


class Channels(Protocol):
    """The hub, as it is published to: a channel is one of its groups."""

    def begin(self) -> None:
        """Take streams from now on."""

    def publish(self, group: str, type_url: str, resources: Resources) -> None:
        """Replace everything of a type."""

    def spare(self, group: str, type_url: str, versions: Mapping[str, str]) -> None:
        """Let clients that hold these versions keep them, though something else is published."""

    def withhold(self, group: str, type_url: str, withheld: frozenset[str]) -> None:
        """Leave these names unanswered for now."""

    def forgive(self, group: str, type_url: str, name: str) -> None:
        """Offer a name again to clients that refused it."""

    def drop_group(self, group: str) -> bool:
        """Forget a channel that nobody listens to; whether it is forgotten."""


class Active(NamedTuple):
    """A refusal that matters now: this resource is wanted for the group, and is not served."""

    refusal: Refusal
    group: str
    wanted: Resource
    served: Resource | None


class _Group:
    """One group of proxies: what it is to have, what it is served, and its builds."""

    def __init__(self) -> None:
        self.wanted: dict[str, Resources] = {}
        self.served: dict[str, Resources] = {}
        """What is wanted, or was before it had to wait for the canary."""
        self.withheld: dict[str, frozenset[str]] = {}
        self.audiences: dict[str, Audience] = {}


class Publisher:
    """Publications of a ``Control``; ``keep`` is called when ``kept`` has changed."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        kept: Kept | None = None,
        canary: str = "",
        now: Callable[[], float],
        wall_s: Callable[[], float],
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        kept = kept or Kept()
        self.quarantine = Quarantine(kept.refusals)
        self.canary = Canary(canary, kept.proven)
        self._goods = kept.goods
        self._fleet = fleet
        self._now = now
        self._wall_s = wall_s
        self._keep = keep
        self._groups: dict[str, _Group] = {}
        self._hub: Channels

    def __repr__(self) -> str:
        """One line for operators."""
        return f"<Publisher groups={len(self._groups)} {self.quarantine!r} {self.canary!r}>"

    def attach(self, hub: Channels) -> None:
        """Say where to publish to; once, before anything else."""
        self._hub = hub

    def channel_of(self, node: NodeInfo) -> str:
        """The hub's group of a proxy; made, and filled, when it is the first of its build."""
        group = names.publication_group(node.id)
        if not names.is_gateway(group):
            return group
        found = self._groups.setdefault(group, _Group())
        key = _CANARY if node.id == self.canary.node else node.build
        if key not in found.audiences and len(found.audiences) >= limits.BUILDS:
            self._drop_silent(found)
            if len(found.audiences) >= limits.BUILDS:
                key = OTHER_BUILDS
        if key not in found.audiences:
            build = OTHER_BUILDS if key is OTHER_BUILDS else node.build
            audience = found.audiences[key] = Audience(build, f"{group} {key}")
            for good in self._goods:
                if (good.group, good.build) == (group, build):
                    audience.prove(Resource(good.type_url, good.name, good.version, good.body))
            for type_url, withheld in found.withheld.items():
                self._hub.withhold(audience.channel, type_url, withheld)
            for type_url in found.wanted:
                self._offer(found, audience, type_url)
        return found.audiences[key].channel

    def publish(self, group: str, type_url: str, resources: Resources) -> None:
        """Replace everything of a type for a group; ``commit`` lets staged types go to all.

        Raises ``ValueError`` when a resource does not carry the name it is filed under.
        """
        self._hub.begin()
        if not names.is_gateway(group):
            self._hub.publish(group, type_url, resources)
            return
        found = self._groups.setdefault(group, _Group())
        before = found.wanted.get(type_url, {})
        for name, resource in resources.items():
            if (old := before.get(name)) is None or old.version != resource.version:
                inner_name.check(name, resource)
        found.wanted[type_url] = resources
        if not self._is_staged(type_url):
            found.served[type_url] = resources
        self._offer_all(found, type_url)

    def withhold(self, group: str, type_url: str, withheld: frozenset[str]) -> None:
        """Leave these names unanswered for now."""
        if not names.is_gateway(group):
            self._hub.withhold(group, type_url, withheld)
            return
        found = self._groups.setdefault(group, _Group())
        found.withheld[type_url] = withheld
        for audience in found.audiences.values():
            self._hub.withhold(audience.channel, type_url, withheld)

    def drop_group(self, group: str) -> None:
        """Forget a group; proxies of it that are still here keep what they have."""
        found = self._groups.get(group)
        if found is None:
            self._hub.drop_group(group)
            return
        found.wanted, found.served = {}, {}
        self._drop_silent(found)
        if not found.audiences:
            del self._groups[group]

    def commit(self) -> None:
        """Everything of a configuration is published: the others follow, or wait for the canary."""
        if not self.canary.node:
            return
        wanted = (
            (group, type_url, resources)
            for group, found in self._groups.items()
            for type_url, resources in found.wanted.items()
            if type_url in STAGED
        )
        self.canary.begin(digest(wanted), now_s=self._now())
        if self.canary.is_waiting:
            self._look_at_canary()
        else:
            self._serve_staged()

    def advance(self, *, now_s: float) -> None:
        """Let time pass: a canary that says nothing is complained of."""
        if self.canary.is_late(now_s=now_s):
            log.warning(
                "%s has not taken the configuration: the other gateways wait for it and keep what "
                "they have; headrace canary release lets them go without it",
                self.canary.node,
            )

    def release_canary(self) -> bool:
        """Serve everybody what the canary has not spoken of; False when nobody waits for it."""
        if not self.canary.is_waiting:
            return False
        self._end_canary()
        return True

    def clusters_in_use(self) -> frozenset[str]:
        """Clusters that are not wanted any more and that somebody is still served routes to."""
        used: set[str] = set()
        for found in self._groups.values():
            wanted = found.wanted.get(CLUSTER, {})
            used.update(found.served.get(CLUSTER, {}).keys() - wanted.keys())
            for audience in found.audiences.values():
                used |= audience.clusters_in_use
        return frozenset(used)

    def took(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        """A proxy has these versions, as it says itself."""
        audience = self._audience_of(node)
        if audience is None:
            return
        fresh = audience.took(type_url, versions)
        if fresh and type_url == ROUTES and audience.kept_clusters:
            self._offer(self._groups[names.publication_group(node.id)], audience, CLUSTER)
        if fresh and not fresh.isdisjoint(self.quarantine.held(audience.build, type_url)):
            self._keep()
        if self.canary.is_waiting and node.id == self.canary.node:
            self._look_at_canary()

    def refused(
        self, node: NodeInfo, type_url: str, versions: Mapping[str, str], message: str
    ) -> None:
        """A proxy refused versions: its build is not sent them again."""
        audience = self._audience_of(node)
        if audience is None:
            return
        held = False
        for name, version in versions.items():
            if version:
                refusal = Refusal(
                    build=audience.build,
                    type_url=type_url,
                    name=name,
                    version=version,
                    proxy=node.id,
                    message=message,
                    at_s=self._wall_s(),
                )
                held = self.quarantine.hold(refusal) or held
        if held:
            self._distrust(audience.build, type_url, versions)
            self._keep()
        if self.canary.is_waiting and node.id == self.canary.node:
            self._look_at_canary()

    def left(self, node: NodeInfo) -> None:
        """A stream ended: a group that nothing is published to is forgotten with its last proxy."""
        group = names.publication_group(node.id)
        if (found := self._groups.get(group)) is not None and not found.wanted:
            self._drop_silent(found)
            if not found.audiences:
                del self._groups[group]

    def release(self, type_url: str, name: str) -> tuple[Refusal, ...]:
        """Send a refused resource again to everybody; the refusals that were held."""
        released = self.quarantine.release(type_url, name)
        for found in self._groups.values() if released else ():
            for audience in found.audiences.values():
                self._hub.forgive(audience.channel, type_url, name)
                self._offer(found, audience, type_url)
        if released:
            if self.canary.node and not self.canary.is_waiting:
                self._serve_staged()
            self._keep()
        return released

    def offered(self, proxy: str, build: str) -> Mapping[str, Resources]:
        """What a gateway's proxy is served, by type."""
        audience = self._audience_of(NodeInfo(proxy, build=build))
        return {} if audience is None else audience.everything

    def active(self) -> Iterator[Active]:
        """Refusals of what is wanted now, with what is served instead."""
        for refusal in self.quarantine:
            for group, found in self._groups.items():
                wanted = found.wanted.get(refusal.type_url, {}).get(refusal.name)
                if wanted is None or wanted.version != refusal.version:
                    continue
                served = [
                    audience.offered(refusal.type_url).get(refusal.name)
                    for audience in found.audiences.values()
                    if audience.build == refusal.build
                ]
                if served:
                    yield Active(refusal, group, wanted, served[0])

    def kept(self) -> Kept:
        """What must outlive a restart."""
        audiences = (
            (group, audience)
            for group, found in self._groups.items()
            for audience in found.audiences.values()
        )
        self._goods = goods(self.quarantine, audiences, self._goods)
        return Kept(refusals=tuple(self.quarantine), goods=self._goods, proven=self.canary.proven)

    def excused(self, proxy: str, build: str, type_url: str) -> frozenset[str]:
        """Names that a proxy is kept from having as they are wanted."""
        audience = self._audience_of(NodeInfo(proxy, build=build))
        found = self._groups.get(names.publication_group(proxy))
        if audience is None or found is None:
            return frozenset()
        refused = self._refused(audience.build, type_url, found.wanted.get(type_url, {}))
        return frozenset(refused) | (audience.kept_clusters if type_url == CLUSTER else frozenset())

    def _refused(self, build: str, type_url: str, wanted: Resources) -> dict[str, str]:
        """Versions among these that a build refuses, by name."""
        held = self.quarantine.held(build, type_url)
        return {
            name: wanted[name].version
            for name in held.keys() & wanted.keys()
            if wanted[name].version in held[name]
        }

    def _is_staged(self, type_url: str) -> bool:
        return bool(self.canary.node) and type_url in STAGED

    def _audience_of(self, node: NodeInfo) -> Audience | None:
        found = self._groups.get(names.publication_group(node.id))
        if found is None:
            return None
        key = _CANARY if node.id == self.canary.node else node.build
        return found.audiences.get(key) or found.audiences.get(OTHER_BUILDS)

    def _offer(self, found: _Group, audience: Audience, type_url: str) -> None:
        """Serve an audience what it is to have of a type, as far as it takes it."""
        is_canary = audience is found.audiences.get(_CANARY)
        wanted = (found.wanted if is_canary else found.served).get(type_url)
        if wanted is None:
            return
        offered = audience.offer(type_url, wanted, self.quarantine.held(audience.build, type_url))
        spared = self._refused(audience.build, type_url, wanted)
        self._hub.spare(audience.channel, type_url, spared)
        self._hub.publish(audience.channel, type_url, offered)
        if type_url == ROUTES and audience.kept_clusters:
            # Other tables need other clusters.
            self._offer(found, audience, CLUSTER)

    def _distrust(self, build: str, type_url: str, versions: Mapping[str, str]) -> None:
        for found in self._groups.values():
            for audience in found.audiences.values():
                if audience.build != build:
                    continue
                for name, version in versions.items():
                    audience.distrust(type_url, name, version)
                self._offer(found, audience, type_url)

    def _look_at_canary(self) -> None:
        """Let the others follow once the canary has taken or refused everything."""
        proxy = self._fleet.proxies.get(self.canary.node)
        if proxy is None:
            return
        for type_url in STAGED:
            behind = self._fleet.behind(proxy, type_url)
            if behind - self.excused(proxy.id, proxy.build, type_url):
                return
        log.info("%s has taken the configuration: the other gateways follow", self.canary.node)
        self._end_canary()

    def _end_canary(self) -> None:
        self.canary.end()
        self._serve_staged()
        self._keep()

    def _serve_staged(self) -> None:
        """Serve the others what the canary was; of what it refused, what they have."""
        proxy = self._fleet.proxies.get(self.canary.node)
        refused = {type_url: self._refused_by_canary(proxy, type_url) for type_url in STAGED}
        for found in self._groups.values():
            for type_url, wanted in found.wanted.items():
                if type_url in refused:
                    before = found.served.get(type_url, {})
                    found.served[type_url] = _without(wanted, refused[type_url], before)
                    self._offer_all(found, type_url)

    def _offer_all(self, found: _Group, type_url: str) -> None:
        for audience in found.audiences.values():
            self._offer(found, audience, type_url)

    def _refused_by_canary(self, proxy: Proxy | None, type_url: str) -> frozenset[str]:
        found = self._groups.get(names.publication_group(self.canary.node))
        if proxy is None or found is None:
            return frozenset()
        return frozenset(self._refused(proxy.build, type_url, found.wanted.get(type_url, {})))

    def _drop_silent(self, found: _Group) -> None:
        """Forget the builds that no stream is left of."""
        for key, audience in list(found.audiences.items()):
            if self._hub.drop_group(audience.channel):
                del found.audiences[key]


def _without(wanted: Resources, refused: frozenset[str], before: Resources) -> Resources:
    """What is wanted, but these names as they were before, or not at all."""
    kept = {name: before[name] for name in refused & wanted.keys() & before.keys()}
    return {**{n: r for n, r in wanted.items() if n not in refused}, **kept}
