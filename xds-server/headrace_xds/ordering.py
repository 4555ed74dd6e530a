"""Make before break on one stream: what must wait for what (reference: xDS ordering).

Clusters and endpoints go at once, together. Listeners, routes and extension configs wait until the
clusters are acknowledged, which Envoy does when they are warm, but not for ever. A cluster is
removed only when no route that the client holds, or is about to get, sends requests to it.
"""

from collections.abc import Mapping

from headrace import limits
from headrace_xds import references
from headrace_xds.group import Group
from headrace_xds.subscription import ABSENT, Allow, News, Subscription
from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    LISTENER,
    ROUTES,
    SCOPES,
)
from headrace_xds.typepolicy import policy_of

_USERS = (LISTENER, SCOPES, ROUTES, EXTENSION)
"""Types whose changes decide which clusters are used."""
_CLUSTERS_PENDING = "clusters"
_ROUTES_PENDING = "routes"


class Ordering:
    """Decides what one stream may send now, given what its client has acknowledged."""

    def __init__(
        self, *, subscriptions: Mapping[str, Subscription], group: Group, alone: bool = False
    ) -> None:
        self._subscriptions = subscriptions
        self._group = group
        self._alone = alone
        """A stream of one type: others are not seen, so that nothing can wait for them."""
        self._waiting_since_s: dict[str, float] = {}
        self._missing: dict[str, frozenset[str]] = {}

    def held_back(self) -> dict[str, frozenset[str]]:
        """Routes that wait for clusters the client lacks, as far as they are still due (R15)."""
        routes = self._subscriptions.get(ROUTES)
        due = routes.dirty if routes is not None else set()
        return {name: missing for name, missing in self._missing.items() if name in due}

    def allow(self, type_url: str, now_s: float) -> Allow:
        """Which news of a type may be sent at this moment."""
        if self._alone:
            return self._allow_endpoints if type_url == ENDPOINTS else _everything
        if policy_of(type_url).after_clusters and self._waits(
            _CLUSTERS_PENDING, now_s, pending=self._clusters_pending()
        ):
            return _nothing
        if type_url == ROUTES:
            return self._allow_routes
        if type_url == CLUSTER:
            return self._allow_clusters(now_s)
        return self._allow_endpoints if type_url == ENDPOINTS else _everything

    def deadline_s(self, now_s: float) -> float | None:
        """When something that waits now may go without what it waits for."""
        ends = (since_s + limits.GATE_S for since_s in self._waiting_since_s.values())
        return min((end_s for end_s in ends if end_s > now_s), default=None)

    def look_again(self) -> None:
        """Stop the clock of what nothing is pending for any more, whoever waited for it."""
        if not self._waiting_since_s:
            return
        if not self._clusters_pending():
            self._waiting_since_s.pop(_CLUSTERS_PENDING, None)
        if not self._routes_pending():
            self._waiting_since_s.pop(_ROUTES_PENDING, None)

    def _waits(self, reason: str, now_s: float, *, pending: bool) -> bool:
        if not pending:
            self._waiting_since_s.pop(reason, None)
            return False
        return now_s - self._waiting_since_s.setdefault(reason, now_s) < limits.GATE_S

    def _clusters_pending(self) -> bool:
        clusters = self._subscriptions.get(CLUSTER)
        if clusters is None:
            # After a reconnect Envoy asks for clusters last: its routes must not overtake them.
            return self._group.shelf(CLUSTER).published
        endpoints = self._subscriptions.get(ENDPOINTS)
        unanswered = [*clusters.outstanding.values()]
        if endpoints is not None:
            unanswered += endpoints.outstanding.values()
        return any(sent.warms for sent in unanswered)

    def _routes_pending(self) -> bool:
        if ROUTES not in self._subscriptions:
            return self._group.shelf(ROUTES).published
        users = (self._subscriptions.get(type_url) for type_url in _USERS)
        return any(user.outstanding or user.dirty for user in users if user is not None)

    def _allow_clusters(self, now_s: float) -> Allow:
        wait = self._waits(_ROUTES_PENDING, now_s, pending=self._routes_pending())
        in_use: list[frozenset[str] | None] = []

        def allow(news: News) -> bool:
            if news.resource is not None or not self._holds_cluster(news.name):
                return True
            if wait:
                return False
            if not in_use:
                in_use.append(self._clusters_in_use())
            return in_use[0] is not None and news.name not in in_use[0]

        return allow

    def _holds_cluster(self, name: str) -> bool:
        held = self._subscriptions[CLUSTER].held.get(name)
        return held is not None and held.version != ABSENT

    def _clusters_in_use(self) -> frozenset[str] | None:
        """Clusters that routes send to; None while the client holds routes we have not seen."""
        routes = self._subscriptions.get(ROUTES)
        if routes is None:
            return frozenset()
        used: set[str] = set()
        for name, held in routes.held.items():
            if held.resource is not None:
                used |= references.clusters_of(held.resource)
            elif held.version != ABSENT:
                return None
            if (wanted := routes.shelf.resources.get(name)) is not None:
                used |= references.clusters_of(wanted)
        for sent in routes.outstanding.values():
            for resource in sent.batch.resources:
                used |= references.clusters_of(resource)
        return frozenset(used)

    def _allow_routes(self, news: News) -> bool:
        clusters = self._subscriptions.get(CLUSTER)
        if news.resource is None or clusters is None or not clusters.shelf.published:
            return True
        missing = {
            name
            for name in references.clusters_of(news.resource)
            if (held := clusters.held.get(name)) is None or held.version == ABSENT
        }
        for sent in clusters.outstanding.values():
            missing.difference_update(resource.name for resource in sent.batch.resources)
        if missing:
            self._missing[news.name] = frozenset(missing)
        else:
            self._missing.pop(news.name, None)
        return not missing

    def _allow_endpoints(self, news: News) -> bool:
        """Never take the endpoints of a live cluster: Envoy would drop all its hosts (R9)."""
        if news.resource is not None:
            return True
        endpoints = self._subscriptions[ENDPOINTS]
        held = endpoints.held.get(news.name)
        has_hosts = held is not None and held.version != ABSENT
        return not (has_hosts and news.name in self._endpoints_in_use())

    def _endpoints_in_use(self) -> set[str]:
        live = [*self._group.shelf(CLUSTER).resources.values()]
        used: set[str] = set()
        clusters = self._subscriptions.get(CLUSTER)
        if clusters is not None:
            for name, held in clusters.held.items():
                if held.version == ABSENT:
                    continue
                used.add(name)
                if held.resource is not None:
                    live.append(held.resource)
        used.update(filter(None, map(references.endpoints_of, live)))
        return used


def _everything(_: News) -> bool:
    return True


def _nothing(_: News) -> bool:
    return False
