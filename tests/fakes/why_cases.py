"""Requests of every kind, to be sent to a gateway and to be asked about."""

from headrace import limits
from headrace.why.request import GRPC, Request, frame
from tests.fakes.why_mesh import GOLD_KEY, KEY

VISION = "/v2/models/vision/infer"
TEXT = "/v2/models/text/infer"
Pair = tuple[str, str]
NAME = b"\x0a\x06vision"
PIN_2 = b"\x12\x012"


def key(value: str = KEY) -> Pair:
    """Header with a key."""
    return ("x-api-key", value)


def post(path: str, *given: Pair, host: str = "localhost", body: bytes = b"{}") -> Request:
    """POST with the usual key."""
    return Request.of(path, given=(key(), *given), host=host, body=body)


def get(path: str, *given: Pair) -> Request:
    """GET without a key."""
    return Request.of(path, method="GET", given=given)


def call(method: str, message: bytes = b"", *given: Pair, host: str = "localhost") -> Request:
    """gRPC call with the usual key."""
    return Request.call(method, message, given=(key(), *given), host=host)


def framed(body: bytes, *given: Pair, kind: str = GRPC) -> Request:
    """ModelInfer with a body as it is."""
    path = "/inference.GRPCInferenceService/ModelInfer"
    return Request.of(path, given=(key(), ("content-type", kind), *given), body=body)


CASES: dict[str, Request] = {
    # Keys
    "no key": Request.of(VISION, body=b"{}"),
    "wrong key": Request.of(VISION, given=[key("no")], body=b"{}"),
    "empty key": Request.of(VISION, given=[key("")]),
    "long key": Request.of(VISION, given=[key("k" * (limits.API_KEY_LENGTH + 1))]),
    "two keys": Request.of(VISION, given=[key(), key()]),
    "key and bearer": Request.of(VISION, given=[key(), ("authorization", f"Bearer {KEY}")]),
    "bearer": Request.of(VISION, given=[("Authorization", f"bearer  {GOLD_KEY}"), ("x-user", "a")]),
    "basic": Request.of(VISION, given=[("authorization", f"Basic {KEY}")]),
    "bearer of two words": Request.of(VISION, given=[("authorization", f"Bearer {KEY} x")]),
    "bare token": Request.of(VISION, given=[("authorization", KEY)]),
    "call without a key": Request.call("ModelInfer", NAME),
    "call with a wrong key": Request.call("ModelInfer", NAME, given=[key("no")]),
    "forged tenant": Request.of(VISION, given=[("x-headrace-tenant", "demo")]),
    # Open paths
    "live": get("/v2/health/live"),
    "ready": get("/v2/health/ready"),
    "model ready": get("/v2/models/vision/ready"),
    "version ready": get("/v2/models/vision/versions/2/ready"),
    "ready of no version": get("/v2/models/vision/versions/x/ready"),
    "ready of no model": get("/v2/models/nothing/ready"),
    "live by POST": Request.of("/v2/health/live"),
    "metadata without a key": get("/v2/models/vision"),
    "server metadata": get("/v2", key()),
    "server metadata with a slash": get("/v2/", key()),
    "server live call": Request.call("ServerLive", b""),
    "server metadata call": call("ServerMetadata"),
    "server metadata call without a key": Request.call("ServerMetadata", b""),
    "health call": Request.call("/grpc.health.v1.Health/Check", b""),
    "model ready call": Request.call("ModelReady", NAME + PIN_2),
    # Models and pins over HTTP
    "infer with a user": post(VISION, ("x-user", "u1")),
    "metadata": get("/v2/models/vision", key(), ("x-user", "u2")),
    "other methods": Request.of(VISION, method="PUT", given=[key(), ("x-user", "u3")]),
    "DELETE": Request.of("/v2/models/ranking/infer", method="DELETE", given=[key()]),
    "implied route": post("/v2/models/ranking/infer"),
    "pin in the path": post("/v2/models/vision/versions/3/infer"),
    "pin in the header": post(VISION, ("headrace-version", "2")),
    "path before header": post("/v2/models/vision/versions/3/infer", ("headrace-version", "2")),
    "pin of no version": post("/v2/models/vision/versions/9/infer"),
    "pin that is no number": post("/v2/models/vision/versions/two/infer"),
    "pin of zero": post(VISION, ("headrace-version", "0")),
    "pin of seven digits": post(VISION, ("headrace-version", "1000000")),
    "two pins": post(VISION, ("headrace-version", "2"), ("headrace-version", "2")),
    "forged pin": post(VISION, ("x-headrace-pin", "3"), ("x-user", "u1")),
    "forged cluster": post(VISION, ("x-headrace-cluster", "m-vision-3-http"), ("x-user", "u1")),
    "forged scope": post("/v2/models/none/infer", ("x-headrace-scope", "vision")),
    "versions without one": post("/v2/models/vision/versions", ("x-user", "u1")),
    "versions and a slash": post("/v2/models/vision/versions/", ("x-user", "u1")),
    "unknown model": post("/v2/models/visio/infer"),
    "escaped model": post("/v2/models/VI%53ION/infer"),
    "model in capitals": post("/v2/models/Vision/infer"),
    "long model": post(f"/v2/models/{'v' * 64}/infer"),
    "no model": post("/v2/models//infer"),
    "models": get("/v2/models", key()),
    "other path": post("/v1/else"),
    "query": post(f"{VISION}?a=/versions/3", ("x-user", "u1")),
    "dots": post("/v2/health/../models/./vision/infer", ("x-user", "u1")),
    "escaped dots": post("/v2/models/x/%2e%2E/vision/infer", ("x-user", "u1")),
    "slashes": post("//v2///models/vision//infer", ("x-user", "u1")),
    "escaped slash": post("/v2/models/vision%2Finfer"),
    "backslash": post("/v2/models/vision\\infer", ("x-user", "u1")),
    "fragment": post(f"{VISION}#x"),
    "underscore": post(VISION, ("x_user", "u1")),
    # Matches
    "host and header": post(VISION, ("x-beta", "1"), host="beta.example"),
    "host with a port": post(VISION, ("x-beta", "1"), host="BETA.example:80"),
    "host below": post(VISION, ("x-beta", "1"), host="a.c.B.example"),
    "host at the wildcard": post(VISION, ("x-beta", "1"), ("x-user", "a"), host="b.example"),
    "header alone": post(VISION, ("x-beta", "1"), ("x-user", "u5")),
    "host alone": post(VISION, ("x-user", "u5"), host="beta.example"),
    "other value": post(VISION, ("x-beta", "2"), ("x-user", "u5"), host="beta.example"),
    "value twice": post(VISION, ("x-beta", "1"), ("x-beta", "1"), ("x-user", "u"),
                        host="beta.example"),
    "one of two values": post(VISION, ("x-beta", "2"), ("x-beta", "1"), host="beta.example"),
    "both values in one": post(VISION, ("x-beta", "2,1"), ("x-user", "u"), host="beta.example"),
    "two headers": post(VISION, ("x-plan", "gold"), ("x-area", "a, b")),
    "one of two headers": post(VISION, ("x-plan", "gold"), ("x-user", "u5")),
    "header in capitals": post(VISION, ("X-Plan", "gold"), ("X-Area", "a, b")),
    "blanks around": post(VISION, ("x-plan", "  gold "), ("x-area", "a, b")),
    "limited host": post(VISION, host="eu.example"),
    "pin on a matched route": post(VISION, ("headrace-version", "1"), host="eu.example"),
    "two hosts": post(VISION, host="a,b"),
    "no route takes it": post("/v2/models/audio/infer"),
    "random": post("/v2/models/audio/infer", ("x-audio", "yes")),
    "pin without a route": post("/v2/models/audio/versions/2/infer"),
    "sticky without its header": post(TEXT),
    "mirrored": post(TEXT, ("x-user", "u7")),
    # Protocol and size
    "upgrade": post(VISION, ("upgrade", "websocket"), ("connection", "upgrade")),
    "half an upgrade": post(VISION, ("upgrade", "websocket"), ("x-user", "u1")),
    "compressed": post(VISION, ("content-encoding", "snappy"), ("x-user", "u1")),
    "too large": post(VISION, body=bytes(limits.BODY_BYTES + 1)),
    "calls by GET": Request.of("/inference.GRPCInferenceService/ModelInfer", method="GET",
                               given=[key(), ("content-type", GRPC)]),
    "call as HTTP": post("/inference.GRPCInferenceService/ModelInfer"),
    "stream as HTTP": post("/inference.GRPCInferenceService/ModelStreamInfer"),
    "path of HTTP as a call": framed(b"", kind="application/json"),
    # gRPC
    "call": call("ModelInfer", NAME, ("x-user", "u1")),
    "call with a pin": call("ModelInfer", NAME + PIN_2),
    "pin before the name": call("ModelInfer", PIN_2 + NAME),
    "the last name counts": call("ModelInfer", b"\x0a\x05other" + NAME, ("x-user", "u1")),
    "call with a pin header": call("ModelInfer", NAME, ("headrace-version", "3")),
    "call by host": call("ModelInfer", NAME, host="eu.example"),
    "call of metadata": call("ModelMetadata", NAME, ("x-user", "u1")),
    "call of nothing": call("ModelInfer"),
    "call of no model": call("ModelInfer", b"\x0a\x01x"),
    "call of no version": call("ModelInfer", NAME + b"\x12\x019"),
    "name that is no text": call("ModelInfer", b"\x0a\x02\xff\xfe"),
    "field zero": call("ModelInfer", b"\x02\x00" + NAME),
    "cut off": call("ModelInfer", b"\x0a\x07vision"),
    "many fields": call("ModelInfer", b"\x1a\x00" * (limits.GRPC_FIELDS + 1) + NAME),
    "unknown method": call("RepositoryIndex"),
    "unknown service": call("/other.Service/Call"),
    "compressed message": framed(b"\x01" + frame(NAME)[1:]),
    "wrong length": framed(frame(NAME)[1:]),
    "grpc-encoding": call("ModelInfer", NAME, ("grpc-encoding", "gzip")),
    "grpc-encoding identity": call("ModelInfer", NAME, ("grpc-encoding", "identity"),
                                   ("x-user", "u1")),
    "application/grpc+proto": framed(frame(NAME), ("x-user", "u1"), kind="application/grpc+proto"),
    "application/grpc-web": framed(frame(NAME), ("x-user", "u1"), kind="application/grpc-web"),
    "application/grpc;": framed(frame(NAME), ("x-user", "u1"), kind="application/grpc;a=b"),
    "stream without a model": call("ModelStreamInfer"),
    "stream of no model": call("ModelStreamInfer", b"", ("headrace-model", "none")),
}  # fmt: skip
