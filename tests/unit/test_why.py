"""Every decision that ``why`` tells, with the line that made it."""

import pytest

from headrace import headers, ir, limits, routing
from headrace.refusals import Refusal
from headrace.why.ask import why
from headrace.why.explanation import Bucket, Endpoint, Explanation, Side, Step
from headrace.why.places import Places
from headrace.why.request import Request, normalized
from headrace.why.sides import point
from headrace.xxh64 import xxh64
from tests.fakes.mesh_ir import mesh as mesh_of
from tests.fakes.mesh_ir import route, served
from tests.fakes.why_cases import CASES, TEXT, VISION, call, key, post
from tests.fakes.why_mesh import FILE, YAML, why_mesh

LOADED, MESH = why_mesh()
PLACES = Places(LOADED)


def ask(request: Request, **more: object) -> Explanation:
    return why(request, MESH, places=PLACES, **more)  # type: ignore[arg-type]


def step(said: Explanation, topic: str) -> Step:
    (found,) = [each for each in said.steps if each.topic == topic]
    return found


def line_of(text: str, after: str = "") -> str:
    """Place of the first line with a text, below the first with another."""
    start = YAML.index(after)
    return f"{FILE}:{YAML[: YAML.index(text, start)].count(chr(10)) + 1}"


def object_line(kind: str, name: str) -> str:
    """Place of an object: its line before the one with its kind."""
    before = YAML[: YAML.index(f"kind: {kind}\nmetadata: {{name: {name}}}")]
    return f"{FILE}:{before.count(chr(10))}"


def test_the_caller_is_told_by_its_key_and_the_key_is_not_shown() -> None:
    said = ask(CASES["bearer"])
    assert (said.tenant, said.tier) == ("gold", "critical")
    assert step(said, "caller").place == line_of("sha256", "name: gold")
    assert "gold-key" not in repr(said)


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("no key", Refusal.INVALID_API_KEY),
        ("upgrade", Refusal.NOT_FOUND),
        ("calls by GET", Refusal.METHOD_NOT_ALLOWED),
        ("two hosts", Refusal.INVALID_VALUE),
        ("escaped slash", Refusal.INVALID_VALUE),
        ("too large", Refusal.REQUEST_TOO_LARGE),
        ("unknown model", Refusal.MODEL_NOT_FOUND),
        ("pin of no version", Refusal.MODEL_NOT_FOUND),
        ("no route takes it", Refusal.MODEL_NOT_FOUND),
        ("grpc-encoding", Refusal.ENCODING_NOT_ACCEPTED),
        ("wrong length", Refusal.INVALID_VALUE),
        ("many fields", Refusal.INVALID_VALUE),
        ("unknown method", Refusal.NOT_IMPLEMENTED),
        ("other path", Refusal.NOT_FOUND),
    ],
)
def test_a_refusal_ends_the_story_with_its_code_and_remedy(name: str, refusal: Refusal) -> None:
    said = ask(CASES[name])
    assert (said.refusal, said.status, said.grpc_status) == (
        refusal.code,
        refusal.http,
        refusal.grpc,
    )
    assert said.steps[-1].topic == "refused"
    assert said.steps[-1].says.endswith(refusal.remedy)
    assert (said.cluster, said.version, said.timeout_s) == ("", None, None)


def test_routes_that_do_not_take_it_say_what_they_miss() -> None:
    found = step(ask(post(VISION, ("x-beta", "1"), ("x-plan", "gold"))), "route")
    assert found.says == "vision"
    assert [(note.topic, note.says) for note in found.notes] == [
        ("vision-gold", 'does not take it: header x-area is absent, not "a, b"'),
        (
            "vision-beta",
            'does not take it: host "localhost" is none of *.b.example, beta.example',
        ),
        ("vision-host", 'does not take it: host "localhost" is none of eu.example'),
        ("vision", "takes every request of the model"),
    ]
    by_name = {note.topic: note.place for note in found.notes}
    assert by_name["vision-beta"] == line_of("hosts:", "name: vision-beta")
    assert by_name["vision-gold"] == line_of("headers:", "name: vision-gold")
    assert by_name["vision"] == object_line("Route", "vision")


def test_routes_are_asked_in_the_order_in_which_they_are_compiled() -> None:
    found = step(ask(post(VISION)), "route")
    assert [note.topic for note in found.notes] == [
        each.name for each in MESH.routes if each.model == "vision"
    ]


def test_a_model_without_a_route_has_one_that_is_implied() -> None:
    said = ask(CASES["implied route"])
    assert (said.route, said.decided_by, said.version) == ("ranking", "only", 1)
    assert "implied: no Route names ranking" in step(said, "route").says
    assert step(said, "route").place == object_line("Model", "ranking")


def test_when_no_route_takes_it_all_are_told() -> None:
    found = step(ask(CASES["no route takes it"]), "route")
    assert (found.says, [note.topic for note in found.notes]) == ("none", ["audio-yes"])


def test_a_sticky_request_falls_on_the_side_its_hash_lies_on() -> None:
    said = ask(post(TEXT, ("x-user", "u1")))
    place = xxh64(b"u1") % limits.SPLIT_TOTAL
    expected = 1 if place < 5_000 else 2 if place < 8_000 else 3
    assert (said.decided_by, said.version) == ("sticky", expected)
    assert said.cluster == f"m-text-{expected}-http"
    assert step(said, "version").place == line_of(
        f"{{version: {expected}, w", "kind: Route\nmetadata: {name: text}"
    )
    assert said.sides == tuple(
        Side(version=version, weight=weight, cluster=f"m-text-{version}-http")
        for version, weight in ((1, 5_000), (2, 3_000), (3, 2_000))
    )


def test_values_of_a_header_given_twice_count_in_their_own_order() -> None:
    one = post(TEXT, ("x-user", "a"), ("x-user", "b"))
    other = post(TEXT, ("x-user", "b"), ("x-user", "a"))
    assert point(one, "x-user") == point(other, "x-user") == xxh64(b"b", xxh64(b"a"))


@pytest.mark.parametrize("name", ["random", "sticky without its header"])
def test_without_a_sticky_header_the_side_is_random_and_told_so(name: str) -> None:
    said = ask(CASES[name])
    assert (said.decided_by, said.version, said.cluster) == ("random", None, "")
    assert step(said, "version").says.startswith("random (")


def test_a_pin_goes_before_the_split_and_keeps_the_bounds_of_the_route() -> None:
    said = ask(CASES["pin on a matched route"])
    assert (said.pin, said.version, said.decided_by, said.route) == (1, 1, "pin", "vision-host")
    assert said.rate_limit == Bucket(name="vision-host", requests=10_000, per_s=1, burst=10_000)
    assert step(said, "version").place == line_of("{version: 1,", "name: vision}")


def test_a_pin_that_no_route_takes_has_bounds_of_its_own() -> None:
    said = ask(CASES["pin without a route"])
    assert (said.route, said.version) == ("", 2)
    assert (said.timeout_s, said.retries) == (
        routing.PINNED_TIMEOUT_S,
        routing.PINNED_RETRY.attempts,
    )


def test_bounds_of_a_route_are_told_with_their_lines() -> None:
    said = ask(CASES["two headers"])
    assert said.timeout_s == 3
    assert step(said, "timeout").place == line_of("timeout: 3s")
    assert "(the default)" in step(said, "retries").says
    text = ask(CASES["mirrored"])
    assert (text.retries, text.mirror and text.mirror.cluster) == (0, "s-text-2-http")
    assert step(text, "mirror").place == line_of("mirror:")
    pinned = ask(post(TEXT, ("headrace-version", "1")))
    assert pinned.mirror is None
    assert step(pinned, "mirror").says.startswith("none")


def test_a_stream_has_no_timeout_no_copy_and_no_bound_on_its_body() -> None:
    request = call("ModelStreamInfer", b"", ("headrace-model", "text"))
    said = why(Request(path=request.path, headers=request.headers, body_bytes=2**40), MESH)
    assert (said.kind, said.timeout_s, said.mirror, said.refusal) == ("stream", None, None, "")


def test_nodes_are_told_by_priority_in_the_order_of_failover() -> None:
    known = {
        "m-vision-1-http": [
            Endpoint(node="n2", pool="us-gpus", address="10.0.0.2", port=1),
            Endpoint(node="n1", pool="eu-gpus", address="10.0.0.1", port=1, weight=3),
            Endpoint(node="n9", pool="gone", address="10.0.0.9", port=1),
        ]
    }
    request = post("/v2/models/vision/versions/1/infer")
    said = ask(request, endpoints=known)
    assert [(each.priority, each.region) for each in said.priorities] == [(0, "eu"), (1, "us")]
    assert [[each.node for each in found.endpoints] for found in said.priorities] == [
        ["n1"],
        ["n2"],
    ]
    known["m-vision-1-http"] = known["m-vision-1-http"][:1]
    # Without a node in its own region the next one takes its priority, as Envoy has no gaps.
    (only,) = ask(request, endpoints=known).priorities
    assert (only.priority, only.region) == (0, "us")
    assert ask(request, endpoints={}).priorities == ()
    assert ask(request, endpoints={}).steps[-2].says.startswith("none")


def test_nodes_of_static_pools_are_known_without_a_server() -> None:
    node = ir.GpuNode("n", "pool", "10.0.0.1", 1, 2, 3)
    pool = ir.Pool("pool", "eu", "eu-a", "t4", 1, registered=False, nodes=(node,))
    mesh = mesh_of(served("vision", 1), route("vision", "vision", (1, 10_000)), pools=(pool,))
    for request, port in ((CASES["infer with a user"], 1), (CASES["call"], 2)):
        (found,) = why(request, mesh).priorities
        assert [each.port for each in found.endpoints] == [port]


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (post(VISION, body=b"{"), "invalid_json"),
        (post(VISION, ("content-encoding", "gzip")), "encoding_not_accepted"),
        (Request.of(VISION, method="GET", given=[key()]), "method_not_allowed"),
        (post("/v2/models/vision/else"), "not_found"),
        (post("/v2/models/ranking/infer", body=b""), ""),
    ],
)
def test_what_the_node_will_refuse_is_told_too(request_: Request, refusal: str) -> None:
    said = ask(request_)
    assert (said.refusal, said.node_refusal) == ("", refusal)


def test_a_request_without_a_model_goes_to_any_node() -> None:
    said = ask(CASES["server metadata"])
    assert (said.decided_by, said.cluster, said.timeout_s) == (
        "node",
        "nodes-http",
        routing.NODES_TIMEOUT_S,
    )


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("/a/./b/../c", "/a/c"),
        ("/a/..", "/"),
        ("/a/.", "/a/"),
        ("/../../a", "/a"),
        ("//a///b//", "/a/b/"),
        ("/a/%2E%2e/b?x=/../y", "/b?x=/../y"),
        ("/a\\b", "/a/b"),
        ("/", "/"),
    ],
)
def test_a_path_is_normalised_as_envoy_does(given: str, normal: str) -> None:
    assert normalized(given) == normal


def test_headers_that_the_mesh_sets_are_dropped_and_set_anew() -> None:
    forged = [(name, "forged") for name in headers.STRIPPED]
    matched = route("t", "vision", (2, 10_000), headers=((headers.TENANT, "demo"),))
    mesh = mesh_of(
        served("vision", 1), served("vision", 2), matched, route("v", "vision", (1, 10_000))
    )
    assert why(post(VISION, *forged), mesh).version == 2


def test_places_are_those_of_the_ir_where_nothing_else_is_known() -> None:
    said = why(CASES["two headers"], MESH)
    assert step(said, "route").place == object_line("Route", "vision-gold")
    assert step(said, "timeout").place == object_line("Route", "vision-gold")
    assert step(said, "caller").place == ""
