"""Which clusters routes need, read from the bytes of the routes."""

from typing import Any

import pytest

from headrace import names
from headrace_xds import references
from headrace_xds.translate import resources, translate
from headrace_xds.translate.fragments import FragmentCache
from tests.fakes import mesh_ir
from tests.fakes.ads_resources import cluster, routes


def hosts(**action: Any) -> dict[str, Any]:
    routed = [{"match": {"prefix": "/"}, "route": action}]
    return {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routed}]}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        pytest.param({"cluster": "b"}, {"b"}, id="one"),
        pytest.param(
            {"weighted_clusters": {"clusters": [{"name": "b"}, {"name": "c"}]}},
            {"b", "c"},
            id="split",
        ),
        pytest.param(
            {"cluster": "b", "request_mirror_policies": [{"cluster": "s"}]}, {"b", "s"}, id="mirror"
        ),
        pytest.param({"cluster_header": "x-cluster"}, set(), id="by-header"),
    ],
)
def test_the_clusters_of_a_route(action: dict[str, Any], expected: set[str]) -> None:
    assert references.clusters_of(routes("r", "a", **hosts(**action))) == expected


def test_the_table_of_a_mesh_names_only_clusters_that_the_mesh_has() -> None:
    split = mesh_ir.route("vision", "vision", (1, 9_500), (2, 500))
    mesh = mesh_ir.mesh(mesh_ir.served("vision", 1), mesh_ir.served("vision", 2), split)
    (gateway,) = mesh.regions[0].gateways
    made = translate(mesh, gateway, FragmentCache())
    table = made[resources.ROUTES][names.route_table("vision")]
    named = references.clusters_of(table)
    assert named >= {names.cluster("vision", version, "http") for version in (1, 2)}
    assert named <= made[resources.CLUSTER].keys()


def test_the_endpoints_of_a_cluster() -> None:
    assert references.endpoints_of(cluster("a")) == "a"
