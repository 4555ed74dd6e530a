"""State-of-the-world requests in terms of delta: every name that is wanted in, what is new out.

A client repeats all its names in every request, also when it only acknowledges. A name that stays
is therefore not asked for again, other than over delta; and a request whose nonce is not the latest
was written before its client knew of the latest response, and is ignored: another follows (R4).
"""

from headrace_xds.messages import Request, SotwRequest, Variant
from headrace_xds.subscription import WILDCARD, Subscription
from headrace_xds.typepolicy import policy_of


class SotwReader:
    """Reads the requests of one stream."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def __repr__(self) -> str:
        """One line for operators."""
        return f"SotwReader(named={len(self._named)})"

    def read(self, request: SotwRequest, subscription: Subscription | None) -> Request | None:
        """What a request says beyond what its subscription knows; None where it is outdated."""
        if subscription is not None and request.nonce not in ("", subscription.nonce):
            return None
        before = subscription.explicit if subscription is not None else frozenset[str]()
        all_before = subscription is not None and subscription.wildcard
        names = dict.fromkeys(request.names)
        added = [name for name in names if name != WILDCARD and name not in before]
        if WILDCARD in names and not all_before:
            added.append(WILDCARD)
        dropped: list[str] = []
        # Under a wildcard a name that is dropped stays wanted: nothing has to be answered.
        if not self._wants_all(request):
            dropped += sorted(name for name in before if name not in names)
            dropped += [WILDCARD] if all_before else []
        if names:
            self._named.add(request.type_url)
        return Request(
            type_url=request.type_url,
            nonce=request.nonce,
            subscribe=tuple(added),
            unsubscribe=tuple(dropped),
            error=request.error,
            node=request.node,
            returning=bool(request.version),
        )

    def _wants_all(self, request: SotwRequest) -> bool:
        """An empty list means all, until a name was asked for on the stream (R10)."""
        if request.names:
            return WILDCARD in request.names
        legacy = policy_of(request.type_url, Variant.SOTW).legacy_wildcard
        return legacy and request.type_url not in self._named
