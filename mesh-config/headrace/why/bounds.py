"""What a request may cost on its way: copies, tokens, time, attempts, bytes, places in a queue."""

from typing import Final, NamedTuple

from headrace import ir, limits, names, routing
from headrace.routing import Kind
from headrace.why.explanation import Bucket, Copy
from headrace.why.story import Story

_DEFAULT: Final = " (the default)"


def tell_route(route: ir.Route, kind: Kind, story: Story, *, pinned: bool) -> None:
    """Mirror, rate limit, timeout and retries of the route that takes the request."""
    _tell_mirror(route, kind, story, pinned=pinned)
    _tell_bucket(route, story)
    _tell_timeout(route.timeout_s, kind, story, _decided(route, story, "timeout"))
    _tell_retry(route.retry, story, _decided(route, story, "retry"), harmless=route.idempotent)


def tell_pinned(served: ir.ServedVersion, kind: Kind, story: Story, *, harmless: bool) -> None:
    """Timeout and retries of a pinned version that no route takes."""
    place = _Decided(story.places.at(served.source), " (no route has a say)")
    _tell_timeout(routing.PINNED_TIMEOUT_S, kind, story, place)
    _tell_retry(routing.PINNED_RETRY, story, place, harmless=harmless)


def tell_node_request(story: Story) -> None:
    """Timeout and retries of a request that any node can answer."""
    _tell_timeout(routing.NODES_TIMEOUT_S, "http", story, _Decided())
    _tell_retry(routing.NODES_RETRY, story, _Decided(), harmless=True)


def tell_version(served: ir.ServedVersion, story: Story) -> None:
    """Balance and breaker of the version that gets the request."""
    places, source = story.places, served.source
    story.say(
        "balance", f"{served.balance} among healthy nodes", places.at(source, "spec", "balance")
    )
    story.say(
        "breaker",
        f"at most {served.max_requests} in flight and {served.max_pending_requests} waiting, "
        f"retries at most {served.retry_budget_percent} % of them",
        places.at(source, "spec", "breaker"),
    )


class _Decided(NamedTuple):
    """Place of a value, and a note where nobody wrote it."""

    place: str = ""
    note: str = ""


def _decided(route: ir.Route, story: Story, field: str) -> _Decided:
    places, source = story.places, route.source
    if source.kind != "Route":
        return _Decided(places.at(source), _DEFAULT)
    is_default = places.is_default(source, "spec", field)
    return _Decided(places.at(source, "spec", field), _DEFAULT if is_default else "")


def _tell_mirror(route: ir.Route, kind: Kind, story: Story, *, pinned: bool) -> None:
    if route.mirror is None:
        return
    place = story.places.at(route.source, "spec", "mirror")
    if not routing.is_mirrored(kind, pinned=pinned):
        story.say("mirror", f"none: a {'pinned request' if pinned else kind} is not copied", place)
        return
    protocol = routing.protocol_of(kind)
    cluster = names.shadow_cluster(route.model, route.mirror.version, protocol)
    story.know(mirror=Copy(cluster=cluster, percent=route.mirror.percent))
    says = f"{route.mirror.percent} % are copied to version {route.mirror.version} ({cluster})"
    story.say("mirror", says, place)


def _tell_bucket(route: ir.Route, story: Story) -> None:
    limit = route.rate_limit
    if limit is None:
        return
    story.know(
        rate_limit=Bucket(
            name=route.name, requests=limit.requests, per_s=limit.per_s, burst=limit.burst
        )
    )
    says = (
        f"{limit.requests} each {limit.per_s:g} s, {limit.burst} at once, "
        f"at this gateway: bucket {route.name}"
    )
    story.say("rate limit", says, story.places.at(route.source, "spec", "rateLimit"))


def _tell_timeout(timeout_s: float, kind: Kind, story: Story, by: _Decided) -> None:
    if kind == "stream":
        story.say("timeout", f"none: a stream may live {limits.STREAM_DURATION_S:g} s")
        return
    story.know(timeout_s=timeout_s)
    story.say("timeout", f"{timeout_s:g} s for all attempts together{by.note}", by.place)


def _tell_retry(retry: ir.Retry, story: Story, by: _Decided, *, harmless: bool) -> None:
    story.know(retries=retry.attempts)
    if retry.attempts == 0:
        story.say("retries", f"none{by.note}", by.place)
        return
    when = (
        "also where it may have run, since running twice is harmless"
        if harmless
        else "only where the request did not run"
    )
    limit_s = retry.per_try_timeout_s
    each = "" if limit_s is None else f", {limit_s:g} s each"
    story.say("retries", f"{retry.attempts} more{each}, {when}{by.note}", by.place)
