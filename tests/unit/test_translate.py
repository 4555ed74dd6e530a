"""Translation as a function: what changes what, what is cached, and what never varies."""

from collections.abc import Callable

import msgspec
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy_data_plane.envoy.config.cluster.v3 import Cluster, ClusterEdsClusterConfig
from envoy_data_plane.envoy.config.core.v3 import HealthCheck, TypedExtensionConfig
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import ir, limits
from headrace_xds.references import clusters_of
from headrace_xds.translate import resources, translate
from headrace_xds.translate.endpoints import Member, load_assignment
from headrace_xds.translate.filters import authenticate
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.packing import pack
from headrace_xds.translate.wire import Template, slot
from tests.fakes.mesh_ir import DEMO, gateway_of, mesh, route, served

PARTS = (
    served("vision", 1),
    served("vision", 2, shadow_max_requests=4),
    route("vision", "vision", (1, 9_500), (2, 500), sticky_header="x-user"),
)


def versions(value: ir.Mesh, cache: FragmentCache | None = None) -> dict[str, dict[str, str]]:
    made = translate(value, gateway_of(value), cache or FragmentCache())
    return {kind: {n: each.version for n, each in found.items()} for kind, found in made.items()}


def test_names_inside_resources_are_the_names_they_are_filed_under() -> None:
    made = translate(mesh(*PARTS), gateway_of(mesh(*PARTS)), FragmentCache())
    assert set(made[resources.CLUSTER]) == {
        "nodes-http", "nodes-grpc", "m-vision-1-http", "m-vision-1-grpc", "m-vision-2-http",
        "m-vision-2-grpc", "s-vision-2-http", "s-vision-2-grpc",
    }  # fmt: skip
    for name, each in made[resources.CLUSTER].items():
        assert Cluster.parse(each.body).name == name == each.name
    assert set(made[resources.ROUTES]) == set(made[resources.SCOPES]) == {"nodes", "models/vision"}
    for table in made[resources.ROUTES].values():
        assert clusters_of(table) <= set(made[resources.CLUSTER])


@pytest.mark.parametrize(
    "change",
    [
        lambda value: msgspec.structs.replace(value, tenants=()),
        lambda value: msgspec.structs.replace(value, routes=()),
        lambda value: msgspec.structs.replace(value, versions=value.versions[:1], routes=()),
        lambda value: msgspec.structs.replace(
            value, routes=(route("vision", "vision", (1, 9_000), (2, 1_000)),)
        ),
        lambda value: msgspec.structs.replace(
            value,
            routes=(route("vision", "vision", (1, 1), rate_limit=ir.RateLimit(1, 1.0, 1)),),
        ),
        lambda value: msgspec.structs.replace(value, orca_port=1),
    ],
    ids=["tenants", "routes", "versions", "weights", "limits", "orca port"],
)
def test_the_listener_depends_on_its_socket_alone(change: Callable[[ir.Mesh], ir.Mesh]) -> None:
    before = mesh(*PARTS)
    after = change(before)
    assert versions(before) != versions(after) or after.orca_port == 1
    assert versions(before)[resources.LISTENER] == versions(after)[resources.LISTENER]


def test_a_weight_changes_the_route_table_and_nothing_else() -> None:
    moved = (*PARTS[:2], route("vision", "vision", (1, 9_000), (2, 1_000), sticky_header="x-user"))
    before, after = versions(mesh(*PARTS)), versions(mesh(*moved))
    assert before[resources.ROUTES] != after[resources.ROUTES]
    for kind in (resources.CLUSTER, resources.EXTENSION, resources.LISTENER):
        assert before[kind] == after[kind]


def test_a_tenant_changes_the_authenticating_filter_and_nothing_else() -> None:
    other = ir.Tenant("other", "critical", ("ab" * 32,))
    before, after = versions(mesh(*PARTS)), versions(mesh(*PARTS, tenants=(DEMO, other)))
    changed = {
        (kind, name)
        for kind, found in before.items()
        for name, version in found.items()
        if after[kind][name] != version
    }
    assert changed == {(resources.EXTENSION, "headrace.authenticate")}


def test_what_a_limit_is_does_not_change_the_route_table() -> None:
    def limited(requests: int) -> ir.Mesh:
        limit = ir.RateLimit(requests, 1.0, requests)
        return mesh(*PARTS[:2], route("vision", "vision", (1, 10_000), rate_limit=limit))

    before, after = versions(limited(1)), versions(limited(2))
    assert before[resources.ROUTES] == after[resources.ROUTES]
    assert before[resources.EXTENSION] != after[resources.EXTENSION]


def test_equal_configuration_has_equal_versions_on_every_replica() -> None:
    cache = FragmentCache()
    assert versions(mesh(*PARTS), cache) == versions(mesh(*PARTS), cache) == versions(mesh(*PARTS))


def test_an_edit_encodes_what_it_changed_and_a_repetition_nothing() -> None:
    def many(canary: int) -> ir.Mesh:
        parts: list[ir.ServedVersion | ir.Route] = []
        for index in range(20):
            name = f"model-{index:02}"
            share = canary if index == 7 else 500
            parts += [served(name, 1), served(name, 2)]
            parts.append(route(name, name, (1, 10_000 - share), (2, share)))
        return mesh(*parts)

    cache = FragmentCache()
    versions(many(500), cache)
    built = cache.built
    versions(many(500), cache)
    assert cache.built == built
    versions(many(2_000), cache)
    # The table and its route; no shape depends on weights.
    assert cache.built == built + 2


def test_fragments_are_bounded_and_the_least_recently_used_goes() -> None:
    assert FragmentCache()._limit == limits.FRAGMENTS
    cache = FragmentCache(limit=2)
    for key in ("a", "b", "a", "c"):
        cache.get(key, lambda key=key: key)  # type: ignore[misc]
    assert cache.size == 2
    assert cache.built == 3
    cache.get("a", lambda: "again")
    assert cache.built == 3
    cache.get("b", lambda: "again")
    assert cache.built == 4


TEXT = st.text(min_size=1, max_size=300)


@settings(max_examples=30, deadline=None)
@given(name=TEXT, service=TEXT, alias=TEXT)
def test_a_filled_template_is_what_authoring_would_have_made(
    name: str, service: str, alias: str
) -> None:
    def author(one: str, two: str, three: str) -> bytes:
        source = ClusterEdsClusterConfig(service_name=two)
        nested = Cluster(name="inner", eds_cluster_config=source, alt_stat_name=three)
        check = HealthCheck(
            event_logger=[TypedExtensionConfig(name="x", typed_config=pack(nested))]
        )
        return bytes(Cluster(name=one, eds_cluster_config=source, health_checks=[check, check]))

    template = Template.compile(author(slot("one"), slot("two"), slot("three")))
    filled = template.fill({"one": name, "two": service, "three": alias})
    assert filled == author(name, service, alias)


def test_text_that_could_leave_its_quotes_is_refused() -> None:
    hostile = ir.Tenant("a]==] os.exit()", "standard", ("ab" * 32,))
    with pytest.raises(ValueError, match="cannot be written into a Lua filter"):
        authenticate((hostile,), FragmentCache())


def member(node: str, **changes: object) -> Member:
    fields: dict[str, object] = {
        "node": node, "address": "10.0.0.1", "port": 1, "region": "eu", "zone": "a", "priority": 0,
    }  # fmt: skip
    return msgspec.convert({**fields, **changes}, Member)


def assignment(*members: Member) -> endpoint_pb2.ClusterLoadAssignment:
    body = load_assignment("m-vision-1-http", members).body
    return endpoint_pb2.ClusterLoadAssignment.FromString(body)


def test_no_member_is_an_empty_assignment_and_never_an_absent_one() -> None:
    empty = load_assignment("m-vision-1-http", ())
    assert empty.name == "m-vision-1-http"
    assert empty.version
    assert not assignment().endpoints


@settings(max_examples=24, deadline=None)
@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_members_changes_nothing(order: list[str]) -> None:
    members = {
        "a": member("a"), "b": member("b", zone="b"), "c": member("c"),
        "d": member("d", region="us", priority=1),
    }  # fmt: skip
    made = load_assignment("c", [members[name] for name in order])
    assert made == load_assignment("c", list(members.values()))


def test_priorities_have_no_gaps_and_weights_are_never_zero() -> None:
    made = assignment(member("a", priority=3, weight=0), member("b", priority=1, health="draining"))
    assert [locality.priority for locality in made.endpoints] == [0, 1]
    [drained], [idle] = (locality.lb_endpoints for locality in made.endpoints)
    assert drained.health_status == 3
    assert idle.load_balancing_weight.value == 1
