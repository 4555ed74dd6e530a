"""Checked objects to the IR: what is looked up, what is filled in, what comes first."""

import msgspec
import pytest

from headrace import ir, limits
from headrace.config import schema
from headrace.config.analyze import analyze, usable
from headrace.config.load import load
from headrace.resolve import resolve, weights
from tests.fakes.small_mesh import CLEAN, changed

ROUTE = """\
---
apiVersion: headrace.dev/v1alpha1
kind: Route
metadata: {name: %s}
spec: {model: echo, %s}
"""
SPLIT = "split: [{alias: stable, weight: 90}, {alias: canary, weight: 10}]"


def resolved(text: str) -> ir.Mesh:
    loaded = load([("a.yaml", text)])
    assert usable(analyze(loaded))
    return resolve(loaded)


def without_route(text: str = CLEAN) -> str:
    """The clean mesh without its only route."""
    documents = text.split("---\n")
    return "---\n".join(part for part in documents if "kind: Route" not in part)


def arms(mesh: ir.Mesh) -> list[tuple[int, int]]:
    (route,) = mesh.routes
    return [(arm.version, arm.weight) for arm in route.arms]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((95, 5), (9_500, 500)),
        ((1, 1, 1), (3_334, 3_333, 3_333)),
        ((1, 2), (3_333, 6_667)),
        ((0, 7), (0, 10_000)),
        ((100_000, 1), (9_999, 1)),
        ((10_000, 1, 1, 1), (9_997, 1, 1, 1)),
    ],
)
def test_weights_are_shares_of_split_total(
    shares: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert weights(shares) == expected
    assert sum(expected) == limits.SPLIT_TOTAL


def test_a_split_without_a_share_is_refused() -> None:
    with pytest.raises(ValueError, match="weight above 0"):
        weights((0, 0))


def test_aliases_become_versions_in_the_order_of_the_split() -> None:
    assert arms(resolved(CLEAN)) == [(1, 9_000), (2, 1_000)]
    turned = changed("aliases: {stable: 1, canary: 2}", "aliases: {stable: 2, canary: 1}")
    assert arms(resolved(turned)) == [(2, 9_000), (1, 1_000)]


def test_a_side_without_weight_is_no_side() -> None:
    assert arms(resolved(changed("weight: 90", "weight: 0"))) == [(2, limits.SPLIT_TOTAL)]


def test_two_sides_of_one_version_are_one_side() -> None:
    text = changed(SPLIT, "split: [{version: 2, weight: 30}, {alias: canary, weight: 70}]")
    assert arms(resolved(text)) == [(2, limits.SPLIT_TOTAL)]


def test_a_route_without_a_split_goes_to_the_alias_stable() -> None:
    assert arms(resolved(changed(f"  {SPLIT}\n", ""))) == [(1, limits.SPLIT_TOTAL)]


def test_a_model_without_a_route_is_routed_as_by_an_empty_route() -> None:
    text = without_route()
    (implicit,) = resolved(text).routes
    (written,) = resolved(text + ROUTE % ("echo", "timeout: 30s")).routes
    assert implicit.source.kind == "Model"
    fields = [name for name in ir.Route.__struct_fields__ if name != "source"]
    assert [getattr(implicit, name) for name in fields] == [
        getattr(written, name) for name in fields
    ]


def test_an_implicit_route_never_takes_the_name_of_another() -> None:
    other = CLEAN.split("---\n")[2].replace("name: echo", "name: taken")
    text = CLEAN + "---\n" + other + ROUTE % ("taken", "match: {hosts: [a.b]}")
    assert {route.name: route.model for route in resolved(text).routes} == {
        "echo": "echo",
        "taken": "echo",
        "taken.implicit": "taken",
    }


def test_a_model_without_a_default_version_has_no_route_of_its_own() -> None:
    assert resolved(without_route(changed("  aliases: {stable: 1, canary: 2}\n", ""))).routes == ()


def test_the_routes_that_ask_for_more_come_first() -> None:
    asked = {
        "a-any": "timeout: 9s",
        "b-host": "match: {hosts: [a.example.com]}",
        "c-wild": "match: {hosts: ['*.example.com']}",
        "d-longer": "match: {hosts: ['*.a.example.com']}",
        "e-mixed": "match: {hosts: [b.example.com, '*.b.example.com']}",
        "f-header": "match: {headers: [{name: x-a, value: '1'}]}",
        "g-two": "match: {headers: [{name: x-a, value: '1'}, {name: x-b, value: '1'}]}",
        "h-header-and-host": "match: {hosts: [a.b], headers: [{name: x-a, value: '1'}]}",
    }
    routes = "".join(ROUTE % each for each in asked.items())
    found = [route.name for route in resolved(without_route() + routes).routes]
    assert found == [
        "g-two", "h-header-and-host", "f-header",
        "b-host", "d-longer", "e-mixed", "c-wild", "a-any",
    ]  # fmt: skip


def test_hosts_and_headers_are_compared_in_one_spelling_and_order() -> None:
    match = "match: {hosts: [B.example.com, a.example.com, b.EXAMPLE.com]}"
    (route,) = resolved(without_route() + ROUTE % ("echo", match)).routes
    assert route.hosts == ("a.example.com", "b.example.com")


def test_every_version_is_held_by_every_pool_unless_it_is_placed() -> None:
    pool = "---\napiVersion: headrace.dev/v1alpha1\nkind: Pool\nmetadata: {name: a}\n"
    text = CLEAN + pool + "spec: {region: eu, zone: eu-1, gpu: {type: t4}}\n"
    assert {version.pools for version in resolved(text).versions} == {("a", "gpus")}
    placed = changed("  aliases:", "  placement: {pools: [gpus, gpus]}\n  aliases:", text)
    assert {version.pools for version in resolved(placed).versions} == {("gpus",)}


def test_the_shadow_breaker_is_the_widest_of_all_mirrors() -> None:
    mirrors = [
        ROUTE % (name, f"match: {{hosts: [{name}]}}, mirror: {{version: 2, maxRequests: {count}}}")
        for name, count in (("few", 3), ("many", 7), ("some", 5))
    ]
    versions = resolved(CLEAN + "".join(mirrors)).versions
    assert [version.shadow_max_requests for version in versions] == [None, 7]


def test_the_retry_budget_of_a_model_is_the_widest_of_its_routes() -> None:
    routes = [
        ROUTE % (name, f"match: {{hosts: [{name}]}}, retry: {{budgetPercent: {percent}}}")
        for name, percent in (("a", 5), ("b", 40))
    ]
    assert {
        v.retry_budget_percent for v in resolved(without_route() + "".join(routes)).versions
    } == {40}
    default = schema.RetrySpec().budget_percent
    assert {v.retry_budget_percent for v in resolved(without_route()).versions} == {default}


def test_text_with_units_becomes_numbers() -> None:
    batching = "  batching: {maxQueueDelay: 0ms, queueTimeout: 1m30.5s}\n"
    text = changed("  aliases:", f"{batching}  slo: {{latency: 250ms}}\n  aliases:")
    text = changed("{type: t4}", "{type: t4, memory: 80GiB}", text)
    text = changed("timeout: 10s", "timeout: 1h\n  rateLimit: {requests: 9, per: 20ms}", text)
    mesh = resolved(text)
    assignment = mesh.versions[0].assignment
    assert assignment.batching.max_queue_delay_s == 0
    assert (assignment.batching.queue_timeout_s, assignment.slo_s) == (90.5, 0.25)
    assert mesh.pools[0].gpu_memory_bytes == 80 * 2**30
    assert mesh.routes[0].timeout_s == 3_600
    assert mesh.routes[0].rate_limit == ir.RateLimit(requests=9, per_s=0.02, burst=9)


def test_parts_know_where_they_come_from() -> None:
    mesh = resolved(CLEAN)
    source = ir.Source(kind="Route", name="echo", file="a.yaml", line=26)
    assert mesh.routes[0].source == source
    assert [version.source.line for version in mesh.versions] == [15, 15]


def test_the_order_of_documents_changes_nothing_but_places() -> None:
    documents = CLEAN.split("---\n")
    turned = resolved("---\n".join(reversed(documents)))
    assert without_places(turned) == without_places(resolved(CLEAN))


def without_places(mesh: ir.Mesh) -> ir.Mesh:
    nowhere = ir.Source(kind="", name="", file="", line=0)
    return msgspec.structs.replace(
        mesh,
        versions=tuple(msgspec.structs.replace(v, source=nowhere) for v in mesh.versions),
        routes=tuple(msgspec.structs.replace(r, source=nowhere) for r in mesh.routes),
    )
