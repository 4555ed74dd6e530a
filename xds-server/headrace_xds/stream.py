"""One xDS stream without I/O: requests and changes in, responses and events out.

It speaks in terms of delta; ``sotw`` reads the other variant into them, and policies say where its
responses differ. The rules R1 to R15 are those of the protocol as real clients behave; a test cites
each. State is kept by stream and type, never by node: one node may have two streams for a moment.
"""

from collections.abc import Callable, Mapping

from headrace import limits
from headrace_xds import references
from headrace_xds.group import Group
from headrace_xds.messages import (
    Claimed,
    Event,
    NodeInfo,
    Rejection,
    Request,
    Response,
    Variant,
)
from headrace_xds.ordering import Ordering
from headrace_xds.subscription import Batch, Subscription
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS
from headrace_xds.typepolicy import POLICIES, policy_of

_ORDER = {type_url: place for place, type_url in enumerate(POLICIES)}


class AdsStream:
    """What to send on one stream, and what its client said.

    With ``only`` the stream is for one type and no other; without, it is aggregated.
    """

    def __init__(
        self,
        *,
        group_for: Callable[[NodeInfo], Group],
        variant: Variant = Variant.DELTA,
        only: str = "",
    ) -> None:
        self.node: NodeInfo | None = None
        self._group_for = group_for
        self._variant = variant
        self._only = only
        self._subscriptions: dict[str, Subscription] = {}
        self._order: list[Subscription] = []
        self._join(Group())
        self._nonce = 0
        self._believe_until_s: float | None = None

    def __repr__(self) -> str:
        """One line for operators."""
        node = "?" if self.node is None else self.node.id
        parts = [repr(subscription) for subscription in self._subscriptions.values()]
        return f"AdsStream({node} sent={self._nonce} {' '.join(parts)})"

    @property
    def held_back(self) -> Mapping[str, frozenset[str]]:
        """Route configurations held back, with the clusters that the client lacks (R15)."""
        return self._ordering.held_back()

    @property
    def asked(self) -> Mapping[str, frozenset[str]]:
        """Names that the client asked for, by type; ``*`` is not among them."""
        return {type_url: frozenset(s.explicit) for type_url, s in self._subscriptions.items()}

    def receive(self, request: Request) -> tuple[Event, ...] | Rejection:
        """Take one request; a rejection ends the stream."""
        refused = self._check(request)
        if refused is not None:
            return refused
        if self.node is None and request.node is not None:
            self.node = request.node
            self._join(self._group_for(request.node))
        events: list[Event] = []
        subscription = self._subscriptions.get(request.type_url)
        # Subscriptions first, whatever the nonce says: it only ever finds what is answered (R4).
        if subscription is None:
            subscription = self._open(request)
            events.append(Claimed(request.type_url, request.initial_versions))
        else:
            subscription.subscribe(request.subscribe)
        events += subscription.unsubscribe(request.unsubscribe)
        if request.error is not None:
            events += subscription.refuse(request.nonce, request.error)
        elif request.nonce:
            events += subscription.acknowledge(request.nonce)
        return tuple(events)

    def subscription(self, type_url: str) -> Subscription | None:
        """State of a type, None when the client never asked for it."""
        return self._subscriptions.get(type_url)

    def changed(self, type_url: str, names: frozenset[str]) -> None:
        """The group has other resources of a type under these names."""
        subscription = self._subscriptions.get(type_url)
        if subscription is not None:
            subscription.changed(names)

    def take(self, now_s: float) -> tuple[Response, ...]:
        """Responses to send now, in this order; each counts as sent."""
        self._doubt(now_s)
        self._ordering.look_again()
        responses: list[Response] = []
        for subscription in self._order:
            if not subscription.may_have_news:
                continue
            allow = self._ordering.allow(subscription.type_url, now_s)
            while (batch := subscription.next_batch(allow)) is not None:
                self._nonce += 1
                nonce, type_url = str(self._nonce), subscription.type_url
                content = subscription.content(batch)
                subscription.sent(nonce, batch)
                responses.append(Response(type_url, nonce, content, batch.removed, self._variant))
                self._owe_endpoints(type_url, batch)
        return tuple(responses)

    def deadline_s(self, now_s: float) -> float | None:
        """When ``take`` may have something to send though nothing happened in between."""
        ends = (self._ordering.deadline_s(now_s), self._believe_until_s)
        return min((end_s for end_s in ends if end_s is not None), default=None)

    def _join(self, group: Group) -> None:
        self._group = group
        self._ordering = Ordering(
            subscriptions=self._subscriptions, group=group, alone=bool(self._only)
        )

    def _check(self, request: Request) -> Rejection | None:
        if self.node is None and (request.node is None or not request.node.id):
            return Rejection("INVALID_ARGUMENT", "the first request of a stream needs a node id")
        if not request.type_url:
            return Rejection("INVALID_ARGUMENT", "a request on an ADS stream needs a type_url")
        if self._only and request.type_url != self._only:
            return Rejection("INVALID_ARGUMENT", f"this method serves nothing but {self._only}")
        subscription = self._subscriptions.get(request.type_url)
        if subscription is None and len(self._subscriptions) >= limits.TYPES_PER_STREAM:
            return Rejection(
                "RESOURCE_EXHAUSTED", f"a stream may ask for {limits.TYPES_PER_STREAM} types"
            )
        names = len(request.subscribe) + len(request.initial_versions)
        if subscription is not None:
            names += len(subscription.explicit)
        if names > limits.SUBSCRIPTIONS_PER_STREAM:
            return Rejection(
                "RESOURCE_EXHAUSTED",
                f"a stream may name {limits.SUBSCRIPTIONS_PER_STREAM} resources of a type; "
                "subscribe to * instead",
            )
        return None

    def _open(self, request: Request) -> Subscription:
        subscription = Subscription(
            type_url=request.type_url,
            policy=policy_of(request.type_url, self._variant),
            shelf=self._group.shelf(request.type_url),
        )
        self._subscriptions[request.type_url] = subscription
        self._order = self._in_order()
        subscription.open(request)
        self._believe()
        return subscription

    def _believe(self) -> None:
        """Take claims of endpoints as true once the client asks for clusters."""
        endpoints = self._subscriptions.get(ENDPOINTS)
        if endpoints is None or not endpoints.believed:
            return
        if not endpoints.policy.believed_after_clusters or CLUSTER in self._subscriptions:
            endpoints.believed = frozenset()
        elif self._only:
            endpoints.doubt()

    def _doubt(self, now_s: float) -> None:
        """Send endpoints after all to a client that does not ask for clusters (R6).

        A cluster waits for endpoints then, and the client does not ask for them again.
        """
        endpoints = self._subscriptions.get(ENDPOINTS)
        if endpoints is None or not endpoints.believed:
            self._believe_until_s = None
        elif self._believe_until_s is None:
            self._believe_until_s = now_s + limits.CLAIM_S
        elif now_s >= self._believe_until_s:
            endpoints.doubt()
            self._believe_until_s = None

    def _in_order(self) -> list[Subscription]:
        """Every subscription, and clusters once more: removals wait for what came after them."""
        last = len(_ORDER)
        ordered = sorted(
            self._subscriptions.values(), key=lambda item: _ORDER.get(item.type_url, last)
        )
        clusters = self._subscriptions.get(CLUSTER)
        return ordered if clusters is None else [*ordered, clusters]

    def _owe_endpoints(self, type_url: str, batch: Batch) -> None:
        """Send the endpoints of changed clusters again: Envoy waits for them, and does not ask."""
        endpoints = self._subscriptions.get(ENDPOINTS)
        if type_url != CLUSTER or endpoints is None:
            return
        for cluster in batch.resources:
            name = references.endpoints_of(cluster)
            if name is not None and name in endpoints.explicit:
                endpoints.owe(name)
