"""How each type of resource is served. The order of the table is the order of sending."""

from dataclasses import dataclass, replace
from typing import Final

from headrace import limits, names
from headrace_xds.messages import Variant
from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    LISTENER,
    ROUTES,
    RUNTIME,
    SCOPES,
    SECRET,
)


@dataclass(frozen=True, slots=True)
class TypePolicy:
    """Rules of one type; the defaults are the ones of a type that nothing depends on."""

    max_in_flight: int = 1
    """Responses without an answer; with more than one, each carries a single resource."""
    legacy_wildcard: bool = False
    """A first request without names means ``*`` (R10); wrong for types that open empty."""
    trusts_claims: bool = False
    """A name that is asked for is not answered where an equal version is claimed (R6)."""
    believed_after_clusters: bool = False
    """Such claims count only once the client asks for clusters, which it does not while one waits
    for endpoints; then it may have lost track of them."""
    removable: bool = True
    """False: absence is never told, because Envoy must not lose such a resource (R9)."""
    warms: bool = False
    """A new version is in effect only after the client fetched what it needs."""
    partial: bool = False
    """A NACK still applies the good resources of the response."""
    after_clusters: bool = False
    """Waits for the clusters and endpoints that were sent before to be acknowledged."""
    keeps_previous: bool = True
    """A client that refuses a version goes on with the one before."""
    whole: bool = False
    """A response carries all the client is to hold, and deletes what it leaves out (R11)."""

    @property
    def single(self) -> bool:
        """True where a response carries one resource or one removal, answered in any order."""
        return self.max_in_flight > 1


POLICIES: Final = {
    CLUSTER: TypePolicy(legacy_wildcard=True, trusts_claims=True, warms=True, partial=True),
    ENDPOINTS: TypePolicy(trusts_claims=True, believed_after_clusters=True),
    SECRET: TypePolicy(),
    LISTENER: TypePolicy(
        legacy_wildcard=True, trusts_claims=True, partial=True, after_clusters=True
    ),
    SCOPES: TypePolicy(legacy_wildcard=True, trusts_claims=True, after_clusters=True),
    ROUTES: TypePolicy(trusts_claims=True, after_clusters=True),
    EXTENSION: TypePolicy(removable=False, after_clusters=True),
    RUNTIME: TypePolicy(removable=False),
    # Sidecars name what they work on beside what they serve: they must hear which one is wanted.
    names.ASSIGNMENT_TYPE_URL: TypePolicy(
        max_in_flight=limits.ASSIGNMENTS_IN_FLIGHT, keeps_previous=False
    ),
}
"""Types that are served. Others are answered as absent, so that no client waits for them."""

UNKNOWN: Final = TypePolicy()


def _sotw(policy: TypePolicy) -> TypePolicy:
    """The same over SotW, where one response is under way and most types cannot delete (R11).

    The version that a client names after a reconnect is not trusted: it may have taken a part of
    a later response that it refused.
    """
    whole = policy.legacy_wildcard
    removable = policy.removable and whole
    return replace(policy, max_in_flight=1, trusts_claims=False, removable=removable, whole=whole)


_SOTW: Final = {type_url: _sotw(policy) for type_url, policy in POLICIES.items()}
_SOTW_UNKNOWN: Final = _sotw(UNKNOWN)


def policy_of(type_url: str, variant: Variant = Variant.DELTA) -> TypePolicy:
    """Policy of a type."""
    if variant is Variant.SOTW:
        return _SOTW.get(type_url, _SOTW_UNKNOWN)
    return POLICIES.get(type_url, UNKNOWN)


NAMED_BY_FIELD_1: Final = frozenset(
    {CLUSTER, ENDPOINTS, SECRET, LISTENER, SCOPES, ROUTES, EXTENSION, RUNTIME}
)
"""Types whose messages carry their own name as field 1."""
