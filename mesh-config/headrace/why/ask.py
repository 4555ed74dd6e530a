"""``why``: follow one request through a gateway, and say what decides at each step."""

from headrace import headers, ir, limits, names, routing
from headrace.refusals import Refusal, Refused
from headrace.why import bounds, caller, front_door, matching, nodes, overrides, sides
from headrace.why.explanation import Explanation, Step
from headrace.why.nodes import Endpoints
from headrace.why.places import Places
from headrace.why.request import Request, arrived
from headrace.why.story import Story
from headrace.why.target import Target, target

_KINDS = {
    "http": "Open Inference Protocol over HTTP",
    "grpc": "Open Inference Protocol over gRPC, one message each way",
    "stream": "Open Inference Protocol over gRPC, a stream of messages",
}


def why(
    request: Request,
    mesh: ir.Mesh,
    *,
    gateway: ir.Gateway | None = None,
    places: Places | None = None,
    endpoints: Endpoints | None = None,
) -> Explanation:
    """Where a request goes and why; never raises. The first gateway of the mesh is the default."""
    story = Story(places or Places())
    found = gateway or next((each for region in mesh.regions for each in region.gateways), None)
    try:
        _Inquiry(mesh, found, endpoints, story).follow(request)
    except matching.NoRouteError as refused:
        story.say("route", "none", notes=refused.asked)
        story.refuse(refused)
    except Refused as refused:
        story.refuse(refused)
    return story.told()


class _Inquiry:
    """One request at one gateway."""

    def __init__(
        self,
        mesh: ir.Mesh,
        gateway: ir.Gateway | None,
        endpoints: Endpoints | None,
        story: Story,
    ) -> None:
        self._mesh = mesh
        self._gateway = gateway
        self._endpoints = endpoints
        self._story = story
        self._region = next(
            (each for each in mesh.regions if gateway and each.name == gateway.region), None
        )

    def __repr__(self) -> str:
        return f"<_Inquiry mesh={self._mesh.name} gateway={self._gateway} {self._story!r}>"

    def follow(self, request: Request) -> None:
        """Tell the story of the request; Refused where the gateway ends it."""
        self._tell_gateway()
        seen = arrived(request)
        self._story.know(kind=seen.kind)
        self._story.say("protocol", _KINDS[seen.kind])
        seen = self._authenticated(seen)
        self._check_size(seen)
        asked = target(seen)
        if asked is None:
            self._to_any_node(seen)
        else:
            self._to_model(_routed(seen, asked), asked)

    def _tell_gateway(self) -> None:
        gateway = self._gateway
        if gateway is None:
            return
        self._story.know(gateway=gateway.name, region=gateway.region)
        place = self._story.places.gateway(self._mesh.name, gateway)
        tls = "" if gateway.tls is None else ", over TLS"
        if gateway.tls is not None and gateway.tls.client_ca:
            tls += f" with a certificate that {gateway.tls.client_ca} signed"
        self._story.say("gateway", f"{gateway.name} in region {gateway.region}{tls}", place)

    def _authenticated(self, request: Request) -> Request:
        caller.check(request)
        bare = request.without(headers.API_KEY, caller.AUTHORIZATION)
        if caller.is_open(request):
            self._story.say("caller", "anyone: the path needs no key")
            return bare
        tenant, hashed = caller.identify(request, self._mesh.tenants)
        self._story.know(tenant=tenant.name, tier=tenant.tier)
        place = self._story.places.key(tenant.name, hashed)
        self._story.say("caller", f"tenant {tenant.name} of tier {tenant.tier}, by its key", place)
        return bare.with_headers((headers.TENANT, tenant.name), (headers.TIER, tenant.tier))

    def _check_size(self, request: Request) -> None:
        if request.plain_path == routing.STREAM_PATH:
            self._story.say("body", "of any length: the node bounds each message of a stream")
            return
        most = limits.BODY_BYTES
        if request.size > most:
            message = f"the body has {request.size} bytes, {most} are allowed"
            raise Refused(Refusal.REQUEST_TOO_LARGE, message)
        self._story.say("body", f"{request.size} of at most {most} bytes")

    def _to_any_node(self, request: Request) -> None:
        for path, protocol in routing.NODE_PATHS:
            if request.plain_path == path and (protocol == "http" or request.is_call):
                break
        else:
            refusal = Refusal.NOT_IMPLEMENTED if request.is_grpc else Refusal.NOT_FOUND
            raise Refused(refusal, f"{request.plain_path[:128]!r} names no model and no such path")
        cluster = names.node_cluster(protocol)
        self._story.know(cluster=cluster, decided_by="node")
        self._story.say("model", "none: any node can answer")
        bounds.tell_node_request(self._story)
        self._story.say("cluster", cluster)
        pools = [pool.name for pool in self._mesh.pools]
        self._finish(request, nodes.Destination(cluster, protocol, pools), None)

    def _to_model(self, request: Request, asked: Target) -> None:
        story = self._story
        story.know(model=asked.model, pin=asked.pin)
        versions = matching.versions_of(self._mesh, asked.model)
        story.say(
            "model", f"{asked.model}, from {asked.model_from}", story.places.at(versions[0].source)
        )
        route, steps = matching.choose(request, asked, self._mesh, story.places)
        self._tell_route(route, asked, steps)
        version = self._version(request, asked, route, versions)
        if route is not None:
            effective = overrides.applied(route, self._mesh.runtime)
            bounds.tell_route(effective, request.kind, story, pinned=asked.pin is not None)
        else:
            harmless = routing.is_harmless(versions)
            bounds.tell_pinned(versions[0], request.kind, story, harmless=harmless)
        overrides.tell(self._mesh.runtime, story)
        likely = self._likely(version, route)
        served = next(each for each in versions if each.version == likely)
        bounds.tell_version(served, story)
        protocol = routing.protocol_of(request.kind)
        cluster = names.cluster(asked.model, likely, protocol)
        if version is not None:
            story.know(version=version, cluster=cluster)
        story.say("cluster", cluster if version is not None else f"{cluster}, the likeliest")
        self._finish(request, nodes.Destination(cluster, protocol, served.pools), served)

    def _tell_route(self, route: ir.Route | None, asked: Target, steps: tuple[Step, ...]) -> None:
        story = self._story
        if route is None:
            story.say("route", "none takes it; a pinned version needs none", notes=steps)
            return
        story.know(route=route.name)
        says = route.name
        if route.source.kind != "Route":
            says = f"{route.name}, implied: no Route names {asked.model}"
        story.say("route", says, story.places.at(route.source), steps)

    def _version(
        self,
        request: Request,
        asked: Target,
        route: ir.Route | None,
        versions: list[ir.ServedVersion],
    ) -> int | None:
        if asked.pin is not None:
            found = sides.pinned(asked, versions, self._story)
            self._story.know(decided_by="pin")
            return found
        assert route is not None, "without a pin, a request that no route takes is refused"
        return sides.split(request, route, routing.protocol_of(request.kind), self._story)

    def _likely(self, version: int | None, route: ir.Route | None) -> int:
        """The version to tell more of: of a random split, the one with the largest share."""
        if version is not None:
            return version
        assert route is not None, "only a route makes a version random"
        return max(routing.sides(route), key=lambda arm: arm.weight).version

    def _finish(
        self,
        request: Request,
        to: nodes.Destination,
        served: ir.ServedVersion | None,
    ) -> None:
        story = self._story
        made = nodes.tell(self._mesh, self._region, to, self._endpoints, story)
        story.know(priorities=made)
        if to.protocol == "http":
            self._ask_front_door(request, served)

    def _ask_front_door(self, request: Request, served: ir.ServedVersion | None) -> None:
        try:
            says = front_door.check(request, served.assignment if served else None)
        except Refused as refused:
            code = refused.refusal.code
            self._story.know(node_refusal=code)
            self._story.say("node", f"refuses it: {code}: {refused.message}")
        else:
            self._story.say("node", f"answers: {says}")


def _routed(request: Request, asked: Target) -> Request:
    """The request with what the gateway writes into it for its routes."""
    seen = request.with_headers((headers.MODEL, asked.model), (headers.SCOPE, asked.model))
    if asked.pin is None:
        return seen
    protocol = routing.protocol_of(request.kind)
    cluster = names.cluster(asked.model, asked.pin, protocol)
    return seen.with_headers((headers.PIN, str(asked.pin)), (headers.CLUSTER, cluster))
