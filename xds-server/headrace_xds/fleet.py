"""Who acknowledged what: every proxy and sidecar, every type, against what is published to it.

This is what ``headrace proxy status`` shows and what "in effect" means: a resource is in effect on
a proxy once the proxy acknowledged the version that is published.
"""

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headrace import names
from headrace_xds.acknowledged import NOTHING, Acknowledged, Versions
from headrace_xds.translate.resources import CLUSTER, LISTENER, Resource


class SyncState(enum.Enum):
    """How far a proxy is with one type; the values are what people read."""

    SYNCED = "SYNCED"
    STALE = "STALE"
    NOT_SENT = "NOT SENT"
    NACK = "NACK"


class Rejection(msgspec.Struct, frozen=True):
    """A version that a proxy refused, and its reason."""

    version: str
    message: str
    at_s: float


class TypeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One type on one proxy: counts of resources, and what was refused."""

    state: SyncState
    published: int
    acknowledged: int
    pending: tuple[str, ...]
    rejected: Mapping[str, Rejection]
    last_ack_s: float | None


_WHOLE: Final = frozenset({CLUSTER, LISTENER, names.ASSIGNMENT_TYPE_URL})
"""Types that proxies subscribe to as a whole, so that removals are acknowledged too."""
PENDING_SHOWN: Final = 20
"""Names listed of what is not in effect yet; the rest are counted only."""


@dataclass
class _Type:
    acked: Acknowledged
    rejected: dict[str, Rejection] = field(default_factory=dict)
    last_ack_s: float | None = None


@dataclass
class Proxy:
    """A client of the control server and its open streams."""

    id: str
    group: str
    build: str
    streams: dict[int, float] = field(default_factory=dict)
    types: dict[str, _Type] = field(default_factory=dict)
    held_back: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Routes that are not sent because the proxy lacks clusters that they name."""


class Fleet:
    """Published versions by group and type, and what each connected proxy makes of them."""

    def __init__(self) -> None:
        self._published: dict[str, dict[str, Versions]] = {}
        self.proxies: dict[str, Proxy] = {}
        self._of_group: dict[str, dict[str, Proxy]] = defaultdict(dict)

    def __repr__(self) -> str:
        """One line for operators."""
        behind = sum(1 for proxy in self.proxies.values() if not self.in_effect(proxy))
        return f"<Fleet proxies={len(self.proxies)} behind={behind}>"

    def published(self, group: str, type_url: str, resources: Mapping[str, Resource]) -> None:
        """Note what a group is to have of one type."""
        versions = {name: resource.version for name, resource in resources.items()}
        of_group = self._published.setdefault(group, {})
        before = of_group.get(type_url, NOTHING)
        if before == versions and type_url in of_group:
            return
        of_group[type_url] = versions
        changed = {name for name, version in versions.items() if before.get(name) != version}
        changed.update(before.keys() - versions.keys())
        for proxy in self._of_group.get(group, {}).values():
            if (kind := proxy.types.get(type_url)) is not None:
                kind.acked.publish(versions, changed)

    def retract(self, group: str) -> None:
        """Forget a group that no longer exists."""
        for type_url, versions in self._published.pop(group, {}).items():
            for proxy in self._of_group.get(group, {}).values():
                if (kind := proxy.types.get(type_url)) is not None:
                    kind.acked.publish(NOTHING, versions)

    def groups(self) -> frozenset[str]:
        """Groups that something is published to."""
        return frozenset(self._published)

    def connected(self, stream_id: int, node: str, group: str, build: str, *, at_s: float) -> None:
        """Note a stream; bookkeeping starts anew with the first stream of a proxy."""
        proxy = self.proxies.get(node)
        if proxy is None:
            proxy = self.proxies[node] = Proxy(node, group, build)
        elif proxy.group != group:
            self._of_group[proxy.group].pop(node)
            for type_url, kind in proxy.types.items():
                before, after = (self._wanted(each, type_url) for each in (proxy.group, group))
                kind.acked.publish(after, before.keys() | after.keys())
        self._of_group[group][node] = proxy
        proxy.group, proxy.build = group, build
        proxy.streams[stream_id] = at_s

    def disconnected(self, stream_id: int, node: str) -> None:
        """Note the end of a stream; a proxy without streams is not in the fleet."""
        if (proxy := self.proxies.get(node)) is None:
            return
        proxy.streams.pop(stream_id, None)
        if not proxy.streams:
            del self.proxies[node]
            del self._of_group[proxy.group][node]

    def claimed(self, node: str, type_url: str, versions: Mapping[str, str]) -> None:
        """Note what a proxy had when it connected."""
        if (proxy := self.proxies.get(node)) is not None:
            self._of_type(proxy, type_url).acked.take(versions)

    def acked(self, node: str, type_url: str, versions: Mapping[str, str], *, at_s: float) -> None:
        """Note an acknowledgement; an empty version acknowledges a removal."""
        if (proxy := self.proxies.get(node)) is None:
            return
        kind = self._of_type(proxy, type_url)
        kind.last_ack_s = at_s
        kind.acked.take(versions)
        if kind.rejected:
            kind.rejected = {n: r for n, r in kind.rejected.items() if n not in versions}

    def nacked(
        self, node: str, type_url: str, versions: Mapping[str, str], message: str, *, at_s: float
    ) -> None:
        """Note a refusal of these versions, by name."""
        if (proxy := self.proxies.get(node)) is None:
            return
        for name, version in versions.items():
            rejection = Rejection(version, message, at_s)
            self._of_type(proxy, type_url).rejected[name] = rejection

    def held_back(self, node: str, missing: Mapping[str, frozenset[str]]) -> None:
        """Note which routes wait for which clusters."""
        if (proxy := self.proxies.get(node)) is not None:
            proxy.held_back = missing

    def types(self, group: str) -> tuple[str, ...]:
        """Types that are published to a group."""
        return tuple(self._published.get(group, {}))

    def status(self, proxy: Proxy, type_url: str) -> TypeStatus:
        """Where a proxy stands with one type."""
        wanted = self._wanted(proxy.group, type_url)
        kind = proxy.types.get(type_url) or self._new_type(proxy, type_url)
        pending = sorted(kind.acked.pending)
        rejected = {
            name: rejection
            for name, rejection in kind.rejected.items()
            if wanted.get(name) == rejection.version
        }
        return TypeStatus(
            state=_state(pending=bool(pending), rejected=bool(rejected), ever=bool(kind.acked)),
            published=len(wanted),
            acknowledged=len(wanted) - sum(1 for name in pending if name in wanted),
            pending=tuple(pending[:PENDING_SHOWN]),
            rejected=rejected,
            last_ack_s=kind.last_ack_s,
        )

    def in_effect(self, proxy: Proxy) -> bool:
        """Whether a proxy has acknowledged everything that is published to it."""
        return all(
            self._is_synced(proxy, type_url, versions)
            for type_url, versions in self._published.get(proxy.group, {}).items()
        )

    def behind(self, proxy: Proxy, type_url: str) -> frozenset[str]:
        """Names of a type that a proxy does not have as they are published."""
        kind = proxy.types.get(type_url)
        return frozenset(kind.acked.pending if kind else self._wanted(proxy.group, type_url))

    def _is_synced(self, proxy: Proxy, type_url: str, wanted: Versions) -> bool:
        kind = proxy.types.get(type_url)
        if kind is None:
            return not wanted
        refused = any(wanted.get(n) == r.version for n, r in kind.rejected.items())
        return not kind.acked.pending and not refused

    def gateways_agree(self, type_url: str, resources: Iterable[str]) -> bool:
        """Whether no connected gateway has another version than is published to it.

        A gateway that has not said yet what it has of the type may have any.
        """
        wanted_names = tuple(resources)
        for proxy in self.proxies.values():
            if not names.is_gateway(proxy.id):
                continue
            if (kind := proxy.types.get(type_url)) is None:
                return False
            wanted = self._wanted(proxy.group, type_url)
            if any(kind.acked.get(name) not in (None, wanted.get(name)) for name in wanted_names):
                return False
        return True

    def _wanted(self, group: str, type_url: str) -> Versions:
        return self._published.get(group, {}).get(type_url, NOTHING)

    def _of_type(self, proxy: Proxy, type_url: str) -> _Type:
        if (kind := proxy.types.get(type_url)) is None:
            kind = proxy.types[type_url] = self._new_type(proxy, type_url)
        return kind

    def _new_type(self, proxy: Proxy, type_url: str) -> _Type:
        # Of a type that is asked for by name, a proxy drops what it no longer needs in silence.
        wanted = self._wanted(proxy.group, type_url)
        return _Type(Acknowledged(wanted, whole=type_url in _WHOLE))


def _state(*, pending: bool, rejected: bool, ever: bool) -> SyncState:
    if rejected:
        return SyncState.NACK
    if not pending:
        return SyncState.SYNCED
    return SyncState.STALE if ever else SyncState.NOT_SENT
